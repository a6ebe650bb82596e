//! One writer at any moment, shown from what was committed.
//!
//! Every process gets a number of its own in a setting of its sessions. A trigger on the lease row notes, for each commit
//! that passed the fence, the number, the term and a place in a sequence: the row is locked from there to the commit, so
//! the sequence is the order of commits. A second trigger notes who recorded signals. One writer means that a term
//! belongs to one process, that terms never go back, and that no signal was recorded without passing the fence.

use std::time::{Duration, Instant};

use crate::hostile::proxy::Proxy;
use crate::support::{
    Daemon, Database, Random, active, cluster, connect, number, seed, under_writers, until,
};

const WITNESS: &str = "
create table verify.fences (n bigint primary key, at timestamptz, tx xid8, term bigint, instance int);
create sequence verify.fence_order;
create function verify.fence() returns trigger language plpgsql security definer as $$
begin
    insert into verify.fences values (nextval('verify.fence_order'), clock_timestamp(), pg_current_xact_id(),
        (new.metadata ->> 'term')::bigint, current_setting('verify.instance', true)::int);
    return null;
end $$;
create trigger witness after update on queue_heartbeat for each row
    when (new.executor_name = 'gov_handoff_intake') execute function verify.fence();
create table verify.effects (tx xid8, instance int);
create function verify.effect() returns trigger language plpgsql security definer as $$
begin
    insert into verify.effects select pg_current_xact_id(), current_setting('verify.instance', true)::int
      where exists (select from fresh where safe_payload ? 'source_key');
    return null;
end $$;
create trigger witness after insert on event_outbox referencing new table as fresh
    for each statement execute function verify.effect();";

/// What would be there if two wrote at once: a term of two processes, a term after a later one, a signal without a fence.
const TWO_WRITERS: &str = "
select (select count(*) from (select from verify.fences group by term having count(distinct instance) > 1) x)
     + (select count(*) from (select term < lag(term) over (order by n) as back from verify.fences) x where back)
     + (select count(*) from verify.effects e
         where not exists (select from verify.fences f where f.tx = e.tx and f.instance = e.instance))
     + (select count(*) from verify.fences where instance is null)";

/// The fence without owner and term, in this database only: what the witness must be able to see.
const WITHOUT_THE_FENCE: &str = "
do $$
declare
    f regprocedure;
    v_old text;
    v_new text;
begin
    for f in select p.oid::regprocedure from pg_proc p
              where p.proname in ('gov_handoff_advance', 'gov_handoff_apply_one', 'gov_lease_fence') loop
        v_old := pg_get_functiondef(f);
        v_new := replace(v_old, 'where executor_name = p_worker and lease_owner = p_owner and (metadata ->> ''term'')::bigint = p_term',
                         'where executor_name = p_worker');
        if v_new = v_old then
            raise exception 'the fence of % is written otherwise', f;
        end if;
        execute v_new;
    end loop;
end $$";

struct Instance {
    process: Daemon,
    number: u32,
    proxy: Proxy,
}

/// Several instances of one worker, each behind a network of its own.
pub struct Company {
    // Before their database, and so ended before it gives its slots back.
    instances: Vec<Instance>,
    pub registry: Database,
    ttl: &'static str,
    mode: &'static str,
    started: u32,
}

impl Company {
    pub async fn of(size: u32, mode: &'static str, ttl: &'static str) -> Self {
        let registry = active().await;
        registry.sql(WITNESS).await;
        let mut company = Self { registry, instances: Vec::new(), ttl, mode, started: 0 };
        for _ in 0..size {
            company.join().await;
        }
        company
    }

    /// Several instances that are started at the same moment.
    pub async fn racing(size: u32, mode: &'static str, ttl: &'static str) -> Self {
        let mut company = Self::of(0, mode, ttl).await;
        for _ in 0..size {
            company.start_another().await;
        }
        company.until_somebody_wrote_since(0).await;
        company
    }

    /// One more, of which the first to come is the first to have the lease.
    async fn join(&mut self) {
        self.start_another().await;
        if self.instances.len() == 1 {
            self.until_somebody_wrote_since(0).await;
        }
    }

    async fn start_another(&mut self) {
        let proxy = Proxy::start(cluster().port()).await;
        let (process, number) = self.start(proxy.port);
        self.instances.push(Instance { process, number, proxy });
    }

    fn start(&mut self, port: u16) -> (Daemon, u32) {
        self.started += 1;
        let through = self.registry.url.replace(&format!(":{}/", cluster().port()), &format!(":{port}/"));
        let url = format!("{through}?options=-c%20verify.instance%3D{}", self.started);
        let settings = [("GOV_HANDOFF_LEASE_TTL", self.ttl), ("GOV_HANDOFF_RECONCILE_INTERVAL", "1s")];
        (Daemon::eager(&url, self.mode, &settings), self.started)
    }

    fn restart(&mut self, which: usize) {
        let (process, number) = self.start(self.instances[which].proxy.port);
        self.instances[which].process = process;
        self.instances[which].number = number;
    }

    /// The last place in the order of commits.
    pub async fn place(&self) -> i64 {
        self.registry.number("select coalesce(max(n), 0) from verify.fences").await
    }

    async fn term(&self) -> i64 {
        self.registry.number("select max(term) from verify.fences").await
    }

    /// Who committed last.
    async fn holder(&self) -> usize {
        let query = "select instance::bigint from verify.fences order by n desc limit 1";
        let number = self.registry.number(query).await;
        self.instances.iter().position(|i| i64::from(i.number) == number).unwrap_or(0)
    }

    pub async fn until_somebody_wrote_since(&self, place: i64) {
        until("somebody writes", async || self.place().await > place).await;
    }

    /// Of two instances the one that does not write.
    pub async fn standby(&self) -> usize {
        1 - self.holder().await
    }

    /// Every instance is running: none gave up.
    pub fn assert_all_run(&mut self) {
        for Instance { process, .. } in &mut self.instances {
            assert!(process.has_ended().is_none(), "it gave up: {}", process.log());
        }
    }

    /// Waits until an instance other than this one writes.
    async fn until_another_wrote_since(&self, number: u32, place: i64) {
        let query = format!("select count(*) from verify.fences where n > {place} and instance <> {number}");
        until("another writes", async || self.registry.number(&query).await > 0).await;
    }

    /// Waits until an instance asks for the lease again and again: one connection after the other, each answered before.
    pub async fn until_it_asks(&self, which: usize) {
        let proxy = &self.instances[which].proxy;
        let before = proxy.connections();
        until("it asks for the lease", async || proxy.connections() > before + 1).await;
    }

    async fn until_taken_over(&self, term: i64) {
        until("another takes over", async || self.term().await > term).await;
    }

    /// How long the lease lay idle between this term's last commit and the next term's first, by the database's clock.
    async fn idle_ms(&self, term: i64) -> i64 {
        let query = format!(
            "select (extract(epoch from (select min(at) from verify.fences where term > {term})
                   - (select max(at) from verify.fences where term = {term})) * 1000)::bigint"
        );
        self.registry.number(&query).await
    }

    pub async fn assert_one_writer(&self) {
        let seen = self.registry.number(TWO_WRITERS).await;
        let told =
            "select string_agg(concat_ws(' ', n, 'term', term, 'instance', instance), E'\\n' order by n)
                      from (select * from verify.fences order by n desc limit 60) f";
        assert_eq!(seen, 0, "two writers:\n{}", self.registry.text_if_any(told).await.unwrap_or_default());
    }
}

/// Kills, stops and cuts one instance after the other, mostly the one that writes, each time until somebody writes again.
async fn suffer(company: &mut Company, dice: &mut Random, over: Instant) -> (u32, Duration) {
    const TTL: Duration = Duration::from_secs(1);
    // One at a time is killed or suspended, so there is always another that can take over: it may have been cut off a moment
    // ago, but then it can connect again, and must not listen to the dead connection for longer than a lease.
    let (mut faults, mut longest) = (0, Duration::ZERO);
    while Instant::now() < over {
        // A pace, not a wait: faults come at any moment of the work.
        tokio::time::sleep(Duration::from_millis(200 + dice.below(900))).await;
        let size = company.instances.len() as u64;
        let mut which = company.holder().await;
        if dice.below(4) == 0 {
            which = usize::try_from(dice.below(size)).unwrap_or(0);
        }
        let (place, began) = (company.place().await, Instant::now());
        match dice.below(6) {
            0 | 1 => {
                company.instances[which].process.kill();
                company.until_somebody_wrote_since(place).await;
                longest = longest.max(began.elapsed());
                company.restart(which);
            }
            2 | 3 => {
                company.instances[which].process.signal("STOP");
                // What had arrived at the server is still committed; then it is another's turn.
                company.until_another_wrote_since(company.instances[which].number, place).await;
                longest = longest.max(began.elapsed());
                // The fault itself: stopped for longer than a lease, whether it was the writer or not.
                tokio::time::sleep((TTL * 3 / 2).saturating_sub(began.elapsed())).await;
                company.instances[which].process.signal("CONT");
            }
            4 => {
                company.instances[which].proxy.reset();
                company.until_somebody_wrote_since(place).await;
                longest = longest.max(began.elapsed());
            }
            _ => {
                company.instances[which].proxy.deafen();
                company.until_somebody_wrote_since(place).await;
                longest = longest.max(began.elapsed());
            }
        }
        faults += 1;
        company.assert_all_run();
    }
    (faults, longest)
}

async fn company_suffers(size: u32, time: Duration) {
    let seed = seed();
    println!("GOV_HANDOFF_TEST_SEED={seed}");
    let mut company = Company::of(size, "auto", "1s").await;
    let (mut dice, url) = (Random::new(seed), company.registry.url.clone());
    let over = Instant::now() + time;
    // One type is activated in the middle of it, after the lease has changed hands: what was captured until then is drained by
    // the instance that writes, under its lease.
    let set = |active| {
        format!("select gov_handoff.gov_type_set_active('governance.handoff.object_registered', {active})")
    };
    company.registry.sql(&set(false)).await;
    let client = connect(&url).await;
    let captured =
        "select count(*) from event_pending where event_type_hint = 'governance.handoff.object_registered'";
    let activation = async {
        let term = "select coalesce(max(term), 0) from verify.fences";
        until("another has the lease", async || number(&client, term).await > 1).await;
        until("rows are captured", async || number(&client, captured).await > 20).await;
        client.batch_execute(&set(true)).await.expect("an activation");
    };
    let suffering = async { tokio::join!(suffer(&mut company, &mut dice, over), activation).0 };
    let (faults, longest) = under_writers(&url, seed, 3, suffering).await;
    company.registry.until_all_handed_off().await;
    let waiting = "select count(*) from event_pending where processed_at is null and last_error is null
                      and event_type_hint = 'governance.handoff.object_registered'";
    until("all is drained", async || company.registry.number(waiting).await == 0).await;
    let drained = "select count(*) from event_pending p join event_outbox o on o.id = p.id
                    where p.processed_at is not null and p.event_type_hint = 'governance.handoff.object_registered'";
    assert!(company.registry.number(drained).await > 20, "captures become signals under the same identities");
    company.assert_one_writer().await;
    let terms = company.term().await;
    println!(
        "{size} instances: {faults} faults, {terms} terms, {longest:.2?} at most until somebody wrote again"
    );
    assert!(terms > 3, "only {terms} terms: the lease hardly changed hands");
    assert!(
        longest < Duration::from_secs(3),
        "nobody wrote for {longest:?}; a lease of 1 s and 2 s more are allowed"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn two_instances_that_are_killed_stopped_and_cut_off_are_one_writer() {
    company_suffers(2, Duration::from_secs(12)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn five_instances_that_are_killed_stopped_and_cut_off_are_one_writer() {
    company_suffers(5, Duration::from_secs(12)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_term_in_the_fence_two_writers_are_seen() {
    let mut company = Company::of(2, "poll", "1s").await;
    company.registry.sql(WITHOUT_THE_FENCE).await;
    let url = company.registry.url.clone();
    // Which of its tasks a thawed process runs first is chance; thirty times in a row it is not.
    let seen = under_writers(&url, 7, 3, async {
        for _ in 0..30 {
            let (which, term) = (company.holder().await, company.term().await);
            company.instances[which].process.signal("STOP");
            company.until_taken_over(term).await;
            company.instances[which].process.signal("CONT");
            let lost = "lease lost, standing by";
            until("it notices", async || company.instances[which].process.log().contains(lost)).await;
            if company.registry.number(TWO_WRITERS).await > 0 {
                return true;
            }
            company.restart(which);
        }
        false
    })
    .await;
    assert!(seen, "the witness is blind");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_writer_is_replaced_at_once_however_long_its_lease() {
    let mut company = Company::of(2, "auto", "15s").await;
    let url = company.registry.url.clone();
    under_writers(&url, 3, 2, async {
        for _ in 0..3 {
            let (which, term) = (company.holder().await, company.term().await);
            company.instances[which].process.kill();
            let killed = Instant::now();
            company.until_taken_over(term).await;
            assert!(killed.elapsed() < Duration::from_secs(2), "taken over after {:?}", killed.elapsed());
            company.restart(which);
            company.until_it_asks(which).await;
        }
    })
    .await;
    company.registry.until_all_handed_off().await;
    company.assert_one_writer().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_was_cut_off_takes_over_from_one_that_is_killed_right_afterwards() {
    let mut company = Company::of(2, "auto", "1s").await;
    let url = company.registry.url.clone();
    under_writers(&url, 13, 2, async {
        for _ in 0..2 {
            let (cut, term) = (company.holder().await, company.term().await);
            company.instances[cut].proxy.deafen();
            company.until_taken_over(term).await;
            let (which, term) = (company.holder().await, company.term().await);
            company.instances[which].process.kill();
            let killed = Instant::now();
            company.until_taken_over(term).await;
            let took = killed.elapsed();
            assert!(
                took < Duration::from_secs(3),
                "taken over after {took:?}; it listened to a dead connection"
            );
            company.restart(which);
            company.until_it_asks(which).await;
        }
    })
    .await;
    company.registry.until_all_handed_off().await;
    company.assert_one_writer().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_writer_keeps_its_lease_to_the_end_and_commits_nothing_afterwards() {
    for mode in ["poll", "auto"] {
        let company = Company::of(2, mode, "3s").await;
        let url = company.registry.url.clone();
        under_writers(&url, 5, 3, async {
            let (which, term) = (company.holder().await, company.term().await);
            let Instance { process, number, .. } = &company.instances[which];
            process.signal("STOP");
            company.until_taken_over(term).await;
            let idle = company.idle_ms(term).await;
            assert!((3_000..5_000).contains(&idle), "{mode}: taken over after {idle} ms of a lease of 3 s");
            company.registry.births("meanwhile", 50).await;
            process.signal("CONT");
            until("it notices", async || process.log().contains("lease lost, standing by")).await;
            // And a while longer, in which it could do harm.
            let place = company.place().await;
            company.until_somebody_wrote_since(place + 20).await;
            let late = format!(
                "select count(*) from verify.fences where instance = {number}
                    and n > (select min(n) from verify.fences where term > {term})"
            );
            assert_eq!(company.registry.number(&late).await, 0, "{mode}: it wrote after its time");
        })
        .await;
        company.registry.until_all_handed_off().await;
        company.assert_one_writer().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn told_to_end_under_load_a_writer_drains_resigns_and_another_goes_on_at_once() {
    let mut company = Company::of(2, "auto", "15s").await;
    let url = company.registry.url.clone();
    under_writers(&url, 11, 4, async {
        company.registry.births("backlog", 30_000).await;
        let (which, term) = (company.holder().await, company.term().await);
        let process = &mut company.instances[which].process;
        process.signal("TERM");
        let told = Instant::now();
        let status = process.end("told to end").await;
        assert_eq!(status.code(), Some(0), "{}", process.log());
        assert!(told.elapsed() < Duration::from_secs(10), "it took {:?} to end", told.elapsed());
        assert!(process.log().contains("lease resigned"), "{}", process.log());
        let ended = Instant::now();
        company.until_taken_over(term).await;
        assert!(ended.elapsed() < Duration::from_secs(2), "taken over {:?} later", ended.elapsed());
    })
    .await;
    company.registry.until_all_handed_off().await;
    company.assert_one_writer().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lone_instance_stopped_past_its_lease_commits_nothing_of_its_old_term_and_goes_on_in_a_new_one() {
    for mode in ["poll", "auto"] {
        let company = Company::of(1, mode, "1s").await;
        let (registry, process) = (&company.registry, &company.instances[0].process);
        // Stopped in the middle of an apply: the server has the statement, and waits for a lock.
        let blocker = connect(&registry.url).await;
        blocker.batch_execute("begin; lock table event_outbox in share mode").await.expect("a lock");
        registry.births("held", 20).await;
        let applies =
            "select count(*) from pg_stat_activity where datname = current_database() and state = 'active'
                          and query like '%gov_handoff_apply%' and pid <> pg_backend_pid()";
        until("it applies", async || registry.number(applies).await > 0).await;
        process.signal("STOP");
        // What the server had been sent before is answered, but for what waits for the lock.
        let busy =
            "select count(*) from pg_stat_activity where datname = current_database() and state = 'active'
                       and application_name like 'gov-handoff %' and backend_type = 'client backend'
                       and wait_event_type is distinct from 'Lock'";
        until("the server has answered", async || registry.number(busy).await == 0).await;
        let (term, place) = (company.term().await, company.place().await);
        let expired =
            "select last_tick_at < clock_timestamp() - interval '1500 milliseconds' from queue_heartbeat
                        where executor_name = 'gov_handoff_intake'";
        registry.until(expired).await;
        blocker.batch_execute("rollback").await.expect("the lock is free");
        until("the server is done with it", async || registry.number(applies).await == 0).await;
        assert_eq!(company.place().await, place, "{mode}: it committed after its time");
        process.signal("CONT");
        until("it notices", async || process.log().contains("lease lost, standing by")).await;
        registry.until_all_handed_off().await;
        let late = format!("select count(*) from verify.fences where n > {place} and term <= {term}");
        assert_eq!(registry.number(&late).await, 0, "{mode}: it went on in its old term");
        let conflict = "select count(*) from system_issues where issue_kind = 'cursor_lease_conflict'";
        assert_eq!(registry.number(conflict).await, 0, "{mode}: nobody was in its way");
        company.assert_one_writer().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_that_hears_nothing_ends_at_once_when_told_to() {
    let mut company = Company::of(2, "poll", "15s").await;
    let asks = "select count(*) from pg_stat_activity where application_name like 'gov-handoff keeper %'
                   and datname = current_database()";
    until("the standby asks", async || company.registry.number(asks).await > 1).await;
    let standby = &mut company.instances[1];
    standby.proxy.stall();
    // It asks about once a second, and waits five for an answer.
    let before = standby.proxy.connections();
    until("it asks and hears nothing", async || standby.proxy.connections() > before).await;
    standby.process.signal("TERM");
    let told = Instant::now();
    let status = standby.process.end("told to end").await;
    assert_eq!(status.code(), Some(0), "{}", standby.process.log());
    assert!(told.elapsed() < Duration::from_millis(2_500), "it took {:?} to end", told.elapsed());
}
