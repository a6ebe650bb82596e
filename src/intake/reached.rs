//! How far the stream has come, for those who wait for it.

use crate::core::lsn::Lsn;
use tokio::sync::watch;

/// The stream has handed off everything that was committed before here. It only grows while one stream lasts, and starts
/// over with the next: a server put back from a backup counts its log from where the backup was taken, and a position of
/// the server before it would vouch for rows that nobody has seen.
#[derive(Debug)]
pub struct Reached(watch::Sender<Lsn>);

impl Default for Reached {
    fn default() -> Self {
        Self(watch::Sender::new(Lsn::ZERO))
    }
}

impl Reached {
    pub fn lsn(&self) -> Lsn {
        *self.0.borrow()
    }

    pub fn subscribe(&self) -> watch::Receiver<Lsn> {
        self.0.subscribe()
    }

    /// A stream starts at `lsn`, where what is durable ends. It may lie behind what the stream before it had reached: less
    /// is vouched for until the server has sent that again, never too much.
    pub fn start_at(&self, lsn: Lsn) {
        self.0.send_replace(lsn);
    }

    pub fn move_to(&self, lsn: Lsn) {
        self.0.send_if_modified(|reached| std::mem::replace(reached, lsn.max(*reached)) < lsn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_never_goes_back_within_a_stream_and_starts_over_with_the_next() {
        let reached = Reached::default();
        reached.start_at(50.into());
        reached.move_to(70.into());
        reached.move_to(60.into());
        assert_eq!(reached.lsn(), 70.into());
        // A backup was put back: its log is behind.
        reached.start_at(20.into());
        assert_eq!(reached.lsn(), 20.into());
        reached.move_to(30.into());
        assert_eq!(reached.lsn(), 30.into());
    }
}
