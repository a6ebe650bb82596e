//! Enqueues jobs.

use super::{Enqueued, NewJob, open};
use crate::config;
use crate::error::{Error, Kind, Result};
use crate::store::Session;
use crate::store::role::Writer;
use uuid::Uuid;

/// A session that enqueues. Its role needs `gov_handoff_producer` and a grant for the kind of executor, or
/// `gov_handoff_operator`.
pub struct Producer {
    session: Session<Writer>,
}

impl Producer {
    /// Connects to this URL; without one, as `DATABASE_URL` and the `PG*` variables say.
    pub async fn connect(url: Option<&str>) -> Result<Self> {
        let session = open(&config::target(url)?, "gov-handoff producer").await?;
        Ok(Self { session })
    }

    /// Enqueues one job and returns its id. If the key is taken, that is the id of the job that has it.
    pub async fn enqueue(&self, job: &NewJob) -> Result<Uuid> {
        match self.enqueue_many(std::slice::from_ref(job)).await?.pop() {
            Some(Enqueued::New(id) | Enqueued::Known(id)) => Ok(id),
            Some(Enqueued::Refused(why)) => {
                let refused = format!("job {} was refused: {why}", job.key());
                Err(self.session.refusal(job.executor().name(), refused).await)
            }
            None => Err(Error::new(Kind::Internal, "the gate did not answer about a job")),
        }
    }

    /// Enqueues jobs in one transaction. One answer for each job, in order; a job that is refused does not stop the others.
    pub async fn enqueue_many(&self, jobs: &[NewJob]) -> Result<Vec<Enqueued>> {
        self.session.enqueue_jobs(jobs).await
    }
}
