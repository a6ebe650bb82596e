revoke create on schema {schema} from {role};
