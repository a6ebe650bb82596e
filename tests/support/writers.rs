//! Random transactions from several connections at once, while a test does something else.

use std::time::Duration;

use tokio_postgres::Client;

use super::Random;

/// One random transaction of births and changes: plain, rolled back, with savepoints, or committed late. Whether it
/// succeeded does not matter: the verdict asks the tables.
async fn write_something(client: &Client, random: &mut Random) -> Result<(), tokio_postgres::Error> {
    let n = 1 + random.below(8);
    let births = format!(
        "insert into birth_registry (entity_code, collection_name, status) select 'r' || g, 'c' || g % 3, \
         case when g % 2 = 0 then 'registered' end from generate_series(1, {n}) g;"
    );
    let change = "insert into registry_changelog (entity_type, entity_code, action) values ('collection', 'x', 'retire');";
    let pause = Duration::from_millis(random.below(400));
    match random.below(6) {
        0 | 1 => client.batch_execute(&births).await,
        2 => client.batch_execute(&format!("begin; {births} {change} rollback;")).await,
        3 => {
            let nested = format!(
                "begin; savepoint a; {births} rollback to a; {change} savepoint b; {births} release b; commit;"
            );
            client.batch_execute(&nested).await
        }
        4 => {
            client.batch_execute(&format!("begin; {births} savepoint late; {change}")).await?;
            tokio::time::sleep(pause).await;
            client.batch_execute("commit").await
        }
        _ => client.batch_execute(&format!("{change} {births}")).await,
    }
}

/// Writes from `writers` connections until `work` ends. A writer connects again whenever the server goes away.
pub async fn under_writers<T>(url: &str, seed: u64, writers: u64, work: impl Future<Output = T>) -> T {
    let tasks: Vec<_> = (0..writers)
        .map(|writer| {
            let url = url.to_owned();
            tokio::spawn(async move {
                let mut random = Random::new(seed.wrapping_mul(31).wrapping_add(writer * 7_919 + 3));
                loop {
                    let Ok((client, connection)) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await
                    else {
                        tokio::time::sleep(Duration::from_millis(20)).await;
                        continue;
                    };
                    tokio::spawn(connection);
                    while write_something(&client, &mut random).await.is_ok() {
                        tokio::time::sleep(Duration::from_millis(random.below(15))).await;
                    }
                }
            })
        })
        .collect();
    let outcome = work.await;
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    for task in tasks {
        let _ = task.await;
    }
    outcome
}
