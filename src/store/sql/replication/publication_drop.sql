drop publication if exists {name}
