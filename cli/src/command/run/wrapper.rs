//! The wrapper: the process that was called. It takes the lock, keeps it while the job runs, and gives it back
//! when no process of the job is left.
//!
//! While the job runs, the wrapper is not in the process group that a shell made for it: the job is. So a terminal's
//! signals, and those to the group, reach the job once and the wrapper not at all. What is sent to the wrapper alone
//! goes to the job. When the job stops, the wrapper stops, and a shell sees that.

use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Receiver};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use leasehold::{LeaseWatch, LockClient};
use rustix::process::{Pid, Signal, getpid, kill_process, setpgid};

use super::acquire::{Acquired, Held, Request, Undue};
use super::backstop::Backstop;
use super::claim::Claim;
use super::clock::{self, Moment, Waiter};
use super::deadline::{Reason, Spans, Step};
use super::gate::Gate;
use super::outcome::Outcome;
use super::process::{self, Family, Reaped};
use super::report::{JobEnd, Link, News, Report};
use super::signal::{self, Effect, Signals};
use crate::connection::ConnectionArguments;
use crate::failure::{Failure, say};
use crate::status;

/// How long the way back of a lock may take that was granted just when a signal ended this program.
const LAST_RELEASE: Duration = Duration::from_secs(1);
/// How long killed processes may take to be gone.
const END: Duration = Duration::from_secs(5);
/// How soon it looks again for them.
const AGAIN: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(crate) struct Wrapper {
    pub(crate) link: Link,
    pub(crate) signals: Signals,
    pub(crate) waiter: Waiter,
    pub(crate) guardian: Pid,
    /// Whether it has waited for the dead guardian, whose number may be another's now.
    pub(crate) is_alone: bool,
    pub(crate) family: Family,
    pub(crate) spans: Spans,
    /// How often the guardian is told until when the lease is valid.
    pub(crate) tick: Duration,
}

/// What the reports have told of a job.
#[derive(Debug, Default)]
struct Progress {
    end: Option<JobEnd>,
    not_started: Option<Option<i32>>,
    /// Why it was told to end before its main process had ended.
    cut: Option<Reason>,
    /// What its caller is to know of that.
    message: Option<String>,
    /// Whether the main process is stopped. Nobody renews the lease of such a job: it may never go on.
    is_stopped: bool,
    is_clean: bool,
    is_unseen: bool,
}

/// What the keeper tells of a lock that it has.
type Granted = (LeaseWatch, Claim);

/// What came of a run.
pub(crate) enum Ending {
    Ran(Outcome),
    /// The lock was not had.
    NotHad,
    /// The job is not due.
    Skipped(Undue),
}

impl Wrapper {
    /// Takes the lock, runs the job, and gives the lock back.
    pub(crate) fn run(
        &mut self,
        (connection, url): (&ConnectionArguments, &str),
        request: &Request,
    ) -> Result<Ending, Failure> {
        let (gate, lost) = (Gate::open(), self.link.sender()?);
        // Closed by the keeper when it has something to say, and when the lock is lost.
        let (silence, silent) = UnixStream::pair()?;
        let (alarm, calm) = UnixStream::pair()?;
        let (grant, granted) = mpsc::channel();
        let (verdict, decided) = mpsc::channel();
        std::thread::scope(|scope| {
            let (gate, verdict) = (&gate, verdict);
            // Waits for Redis, while this thread waits for signals.
            let keep = move || {
                let client = connection.builder_for(url)?.build()?;
                if !gate.pass(&client) {
                    // A signal is ending this program.
                    return Ok(Ending::NotHad);
                }
                let held = match request.acquire(&client)? {
                    Acquired::Held(held) => held,
                    Acquired::NotHad => return Ok(Ending::NotHad),
                    Acquired::Skipped(undue) => return Ok(Ending::Skipped(undue)),
                };
                // A lease that came from the queue is short at first.
                held.confirm()?;
                held.on_loss(move |_| {
                    lost.send(News::Lost);
                    drop(calm);
                });
                let _ = grant.send((held.watch(), held.claim()));
                drop(silent);
                match decided.recv() {
                    Ok(outcome) => Ok(Ending::Ran(give_back(held, outcome))),
                    Err(_) => {
                        // Processes of the job may be left: the lock ends with its lease.
                        std::mem::forget(held);
                        Ok(Ending::Ran(Outcome::Cut))
                    }
                }
            };
            let keeper = std::thread::Builder::new().spawn_scoped(scope, keep)?;
            let mut message = None;
            if let Some((watch, claim)) = self.await_grant(&granted, &silence, &keeper, gate)? {
                let (outcome, said) = self.attend(&watch, &claim, &alarm)?;
                let _ = verdict.send(outcome);
                message = said;
            }
            let ending = keeper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            // Only now: whoever should read it may hold it up for ever.
            if let Some(text) = message {
                say(&text);
            }
            ending
        })
    }

    /// Waits for the lock. A signal that would end a program while it waits ends this one.
    fn await_grant<T>(
        &mut self,
        granted: &Receiver<Granted>,
        silence: &UnixStream,
        keeper: &ScopedJoinHandle<'_, T>,
        gate: &Gate<LockClient>,
    ) -> Result<Option<Granted>, Failure> {
        loop {
            match granted.try_recv() {
                Ok(granted) => return Ok(Some(granted)),
                Err(_) if keeper.is_finished() => return Ok(None),
                Err(_) => {}
            }
            let inputs = [Some(silence.as_fd()), self.signals.input()];
            let inputs: Vec<_> = inputs.into_iter().flatten().collect();
            self.waiter.wait(&inputs, Moment::now().after(Duration::from_secs(60)))?;
            self.obey_signals(gate);
            self.reap();
        }
    }

    /// Does what signals do to a program that does not handle them.
    fn obey_signals(&mut self, gate: &Gate<LockClient>) {
        while let Some(arrival) = self.signals.next() {
            match arrival.effect() {
                Effect::Nothing => {}
                Effect::Stop => signal::stop_by(arrival.number),
                Effect::End if signal::is_ignored(arrival.number) => {}
                Effect::End => {
                    // The lock may just have been granted.
                    gate.shut().map(|client| client.close(Duration::ZERO, LAST_RELEASE));
                    self.dismiss_guardian();
                    signal::die_of(arrival.number);
                    std::process::exit(128 + arrival.number);
                }
            }
        }
    }

    /// Waits for the end of the guardian, which has nothing to do any more.
    fn dismiss_guardian(&mut self) {
        self.link.send(News::Over);
        self.link.close();
        let end = Moment::now().after(LAST_RELEASE);
        loop {
            self.reap();
            if self.is_alone {
                return;
            }
            if Moment::now() >= end {
                let _ = kill_process(self.guardian, Signal::KILL);
            }
            let _ = self.await_children(Moment::now().after(AGAIN));
        }
    }

    /// Waits for all children that have ended: the guardian, and orphans that came to this process. Returns whether any
    /// child is left.
    fn reap(&mut self) -> bool {
        loop {
            match process::reap() {
                Reaped::Changed(pid, status) if status.exited() || status.signaled() => {
                    self.family.forget(pid);
                    self.is_alone |= pid == self.guardian;
                }
                Reaped::Changed(..) => {}
                Reaped::Nothing => return true,
                Reaped::NoChild => {
                    self.is_alone = true;
                    return false;
                }
            }
        }
    }

    /// Waits for news of a child, which is a signal. No other signal counts any more.
    fn await_children(&mut self, until: Moment) -> std::io::Result<()> {
        while self.signals.next().is_some() {}
        let inputs: Vec<_> = self.signals.input().into_iter().collect();
        self.waiter.wait(&inputs, until)
    }

    /// Runs the job, and keeps the guardian informed until no process of the job is left. Returns what there is to
    /// say, too.
    fn attend(
        &mut self,
        watch: &LeaseWatch,
        claim: &Claim,
        alarm: &UnixStream,
    ) -> Result<(Outcome, Option<String>), Failure> {
        let valid_until = self::valid_until(watch);
        let token = watch.fencing_token().get();
        claim.news().for_each(|news| self.link.send(news));
        self.link.send(News::Start { valid_until, token });
        // A guardian that is stopped does not keep its promise. Then this process does, as late as it can.
        let mut backstop = Backstop::new(self.spans, valid_until);
        let mut progress = Progress::default();
        let mut tick = Moment::now().after(self.tick);
        let mut alarm = Some(alarm);
        loop {
            let now = Moment::now();
            if now >= tick {
                if !progress.is_stopped {
                    self.link.send(News::Valid(self::valid_until(watch)));
                    backstop.extend(self::valid_until(watch));
                }
                tick = now.after(self.tick);
            }
            if alarm.take_if(|alarm| clock::is_ready(alarm.as_fd())).is_some() {
                backstop.lose(now);
            }
            self.pass_signals_on();
            let reports = self.link.receive();
            self.hear(&reports, watch, &mut progress, &mut backstop);
            if progress.is_clean {
                return Ok((progress.outcome(), progress.message));
            }
            if progress.is_unseen {
                return Err(unseen("the job is over"));
            }
            if self.link.is_closed() {
                return self.end_all("the guardian of the job was killed, and the job with it");
            }
            self.reap();
            self.family.note_strangers();
            let last = match backstop.step(now) {
                Step::Wait(last) => last,
                Step::Terminate(_) => {
                    self.family.terminate();
                    continue;
                }
                Step::Kill => {
                    let why = "the guardian of the job did not run, and its lease was over or about to end";
                    return self.end_all(why);
                }
            };
            let inputs =
                [Some(self.link.as_fd()), self.signals.input(), alarm.map(|alarm| alarm.as_fd())];
            let inputs: Vec<_> = inputs.into_iter().flatten().collect();
            self.waiter.wait(&inputs, tick.min(last))?;
        }
    }

    fn pass_signals_on(&mut self) {
        let guardian = self.guardian.as_raw_nonzero().get();
        while let Some(arrival) = self.signals.next() {
            if arrival.is_for_job(guardian) {
                self.link.send(News::Signal(arrival.number));
            }
        }
    }

    fn hear(
        &mut self,
        reports: &[Report],
        watch: &LeaseWatch,
        progress: &mut Progress,
        backstop: &mut Backstop,
    ) {
        for (place, report) in reports.iter().enumerate() {
            match *report {
                Report::Started => self.stand_back(),
                Report::NotStarted(error) => {
                    (progress.not_started, progress.is_clean) = (Some(error), true);
                }
                Report::Stopped(by) => {
                    progress.is_stopped = true;
                    // A later report may say that the job goes on.
                    let is_last = |later: &Report| matches!(later, Report::Margin(_));
                    if reports[place + 1..].iter().all(is_last) {
                        // It has no effect on the first process of a container, or on one without a shell.
                        signal::stop_by(by);
                    }
                }
                Report::Continued => {
                    progress.is_stopped = false;
                    self.link.send(News::Awake);
                }
                Report::Ending(Reason::Finished) => {}
                Report::Ending(reason) => {
                    backstop.announced();
                    let why = watch.loss().map(|loss| loss.to_string());
                    let why = why.unwrap_or_else(|| match progress.is_stopped {
                        true => "the job was stopped for as long as its lease".to_owned(),
                        false => "no renewal was confirmed in time".to_owned(),
                    });
                    progress.message = Some(format!("{why}; the job was ended"));
                    progress.cut = Some(reason);
                }
                Report::Ended(end) => {
                    self.link.send(News::Awake);
                    progress.end = Some(end);
                }
                Report::Clean => progress.is_clean = true,
                Report::Unseen => progress.is_unseen = true,
                Report::Margin(nanos) => backstop.set_margin(Duration::from_nanos(nanos)),
            }
        }
    }

    /// Leaves the standard streams and, if it can, the process group to the job. The leader of a session cannot.
    fn stand_back(&self) {
        if let Ok(null) = std::fs::File::options().read(true).write(true).open("/dev/null") {
            let _ = rustix::stdio::dup2_stdin(&null);
            let _ = rustix::stdio::dup2_stdout(&null);
        }
        // A group of its own would have the number of the job's, if the job's has this process's.
        let other = (process::group() == Some(getpid())).then_some(self.guardian);
        let _ = setpgid(None, other);
    }

    /// Kills all that is left below this process: the job's processes are its children or become so.
    fn end_all(&mut self, why: &str) -> Result<(Outcome, Option<String>), Failure> {
        let end = Moment::now().after(END);
        loop {
            let found = self.family.kill();
            let is_last = !self.reap() || self.family.has_only_strangers();
            if is_last && !self.family.has_members() {
                return Ok((Outcome::Cut, Some(why.to_owned())));
            }
            let now = Moment::now();
            if now >= end {
                return Err(match found {
                    0 => unseen(why),
                    _ => {
                        let text = format!("{why}; some of its processes cannot be killed");
                        Failure::new(status::LOST, text)
                    }
                });
            }
            self.await_children(now.after(AGAIN).min(end))?;
        }
    }
}

/// The system says that there are processes, and shows none.
fn unseen(why: &str) -> Failure {
    let text = format!(
        "{why}; processes of it may be left: there are some by wait(2), and none is to be found in /proc. \
         The lock ends with its lease"
    );
    Failure::new(status::UNSEEN, text)
}

/// No child is left behind, however a run ends.
impl Drop for Wrapper {
    fn drop(&mut self) {
        self.dismiss_guardian();
    }
}

/// Gives the lock back. A job whose lock was lost before was perhaps not alone.
fn give_back(held: Held, outcome: Outcome) -> Outcome {
    let valid_until = valid_until(&held.watch());
    let is_success = held.is_success(outcome);
    match held.give_back(outcome) {
        Err(error) if error.is_lost() => {
            if outcome != Outcome::Cut {
                say(&error);
            }
            Outcome::Cut
        }
        // The client's worker goes on trying until this process ends.
        Err(error) => {
            say(&error);
            match is_success {
                // Others may run the job again, now or in a moment.
                true if Moment::now() >= valid_until => Outcome::Cut,
                true => Outcome::Unrecorded,
                false => outcome,
            }
        }
        Ok(()) => outcome,
    }
}

impl Progress {
    fn outcome(&self) -> Outcome {
        match (self.not_started, self.cut, self.end) {
            (Some(None), ..) => Outcome::TooLate,
            (Some(Some(error)), ..) => Outcome::NotRun(error),
            (None, None, Some(end)) => Outcome::Ended(end),
            _ => Outcome::Cut,
        }
    }
}

/// The end of validity on the clock of all processes. It is never late: the clock is read first.
fn valid_until(watch: &LeaseWatch) -> Moment {
    let now = Moment::now();
    now.after(watch.remaining())
}
