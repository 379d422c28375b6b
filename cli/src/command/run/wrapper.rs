//! The wrapper: the process that was called. It takes the lock, keeps it while the job runs, and gives it back
//! when no process of the job is left.
//!
//! While the job runs, the wrapper is not in the process group that a shell made for it: the job is. So a terminal's
//! signals, and those to the group, reach the job once and the wrapper not at all. What is sent to the wrapper alone
//! goes to the job. When the job stops, the wrapper stops, and a shell sees that.

use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use leasehold::{LeaseWatch, LockClient, LossCause};
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
use super::speaker::Speaker;
use crate::connection::ConnectionArguments;
use crate::failure::{Failure, say};
use crate::name::Shown;
use crate::{status, warning};

/// How long a job runs before its wrapper listens for a forced release. A shorter one costs no connection for that.
const LISTEN_AFTER: Duration = Duration::from_secs(1);
/// How long the way back of a lock may take that was granted just when a signal ended this program.
const LAST_RELEASE: Duration = Duration::from_secs(1);
/// The library renews this often.
const RENEWALS_PER_LEASE: u32 = 3;
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
    /// The process group of the job, if that has a number here.
    pub(crate) group: Option<Pid>,
    /// Whether the program of the job has begun.
    pub(crate) has_begun: bool,
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
    /// What came of it, if it was told to end before its main process had ended.
    cut: Option<Outcome>,
    /// What its caller is to know of that.
    message: Option<String>,
    /// Whether the main process is stopped. Nobody renews the lease of such a job: it may never go on.
    is_stopped: bool,
    is_clean: bool,
    is_unseen: bool,
}

/// What the keeper tells of a lock that it has.
struct Granted {
    watch: LeaseWatch,
    claim: Claim,
    /// When the hold is over that `--max-hold` allows, and how much earlier a renewal is due.
    overdue: Option<(Moment, Duration)>,
}

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
        speaker: &Speaker,
    ) -> Result<Ending, Failure> {
        let (gate, lost) = (Gate::open(), self.link.sender()?);
        let asked = match request.on_ask {
            Some(signal) => Some((signal, self.link.sender()?)),
            None => None,
        };
        // Closed by the keeper when it has something to say, and when the lock is lost.
        let (silence, silent) = UnixStream::pair()?;
        let (alarm, calm) = UnixStream::pair()?;
        let (grant, granted) = mpsc::channel();
        let (verdict, decided) = mpsc::channel();
        std::thread::scope(|scope| {
            let (gate, verdict) = (&gate, verdict);
            // Waits for Redis, while this thread waits for signals.
            let keep = move || {
                let builder = connection.builder_for(url)?.label(&request.label);
                // It says by itself that it waits.
                let builder = builder.command_timeout(connection.timeout_for(request.lease));
                let builder = builder.slow_wait(None);
                let builder = match asked {
                    Some((signal, job)) => builder.on_release_request(move |name| {
                        job.send(News::Signal(signal));
                        say(&format_args!(
                            "somebody asks for \"{}\": the job gets signal {signal}",
                            Shown(name)
                        ));
                    }),
                    None => builder,
                };
                let client = builder.build()?;
                if !gate.pass(&client) {
                    // A signal is ending this program.
                    return Ok(Ending::NotHad);
                }
                let wait = speaker.wait(&client);
                let acquired = request.acquire(&client);
                let granted = Moment::now();
                drop(wait);
                let held = match acquired? {
                    Acquired::Held(held) => held,
                    Acquired::NotHad => {
                        speaker.tell_refusal(&client, request.wait);
                        return Ok(Ending::NotHad);
                    }
                    Acquired::Skipped(undue) => return Ok(Ending::Skipped(undue)),
                };
                // A lease that came from the queue is short at first.
                held.confirm()?;
                held.on_loss(move |_| {
                    // What the library says next is said at the end of the job.
                    warning::hide();
                    lost.send(News::Lost);
                    drop(calm);
                });
                let overdue = request
                    .max_hold
                    .map(|limit| (granted.after(limit), request.lease / RENEWALS_PER_LEASE));
                let (watch, claim) = (held.watch(), held.claim());
                let _ = grant.send(Granted { watch, claim, overdue });
                drop(silent);
                let decision = match decided.recv_timeout(LISTEN_AFTER) {
                    Err(RecvTimeoutError::Timeout) => {
                        held.listen();
                        decided.recv().map_err(RecvTimeoutError::from)
                    }
                    decision => decision,
                };
                match decision {
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
            if let Some(granted) = self.await_grant(&granted, &silence, &keeper, gate)? {
                let (outcome, said) = self.attend(&granted, &alarm)?;
                let _ = verdict.send(outcome);
                message = said;
            }
            let ending = keeper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            // Only now: its reader may hold it up for ever.
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
                    warning::hide();
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
        granted: &Granted,
        alarm: &UnixStream,
    ) -> Result<(Outcome, Option<String>), Failure> {
        let Granted { watch, claim, .. } = granted;
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
            self.hear(&reports, granted, &mut progress, &mut backstop);
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
            // A job that has not begun is not in the group yet.
            let has_it = self.has_begun && arrival.has_reached_group(self.group);
            if arrival.is_for_job(guardian) && !has_it {
                self.link.send(News::Signal(arrival.number));
            }
        }
    }

    fn hear(
        &mut self,
        reports: &[Report],
        granted: &Granted,
        progress: &mut Progress,
        backstop: &mut Backstop,
    ) {
        for (place, report) in reports.iter().enumerate() {
            match *report {
                Report::Started => {
                    self.has_begun = true;
                    self.stand_back();
                }
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
                    let (outcome, why) = granted.why_ended(reason, progress.is_stopped);
                    progress.message = Some(format!("{why}; the job was ended"));
                    progress.cut = Some(outcome);
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
            if outcome.is_cut() {
                return outcome;
            }
            say(&error);
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
            (None, Some(outcome), _) => outcome,
            (None, None, None) => Outcome::Cut,
        }
    }
}

impl Granted {
    /// What becomes of a job that is told to end, and why it is.
    fn why_ended(&self, reason: Reason, is_stopped: bool) -> (Outcome, String) {
        let loss = self.watch.loss();
        let is_overdue = match &loss {
            Some(loss) => loss.cause() == LossCause::MaxHold,
            // A lease that nobody was told of ends by itself.
            None if is_stopped => false,
            None => reason == Reason::Silence && is_overdue(valid_until(&self.watch), self.overdue),
        };
        if is_overdue {
            let why = "the job has held its lock for as long as --max-hold allows";
            return (Outcome::Overdue, why.to_owned());
        }
        let why = loss.map_or_else(
            || match is_stopped {
                true => "the job was stopped for as long as its lease".to_owned(),
                false => "no renewal was confirmed in time".to_owned(),
            },
            |loss| loss.to_string(),
        );
        (Outcome::Cut, why)
    }
}

/// Whether a lease ends because no later renewal is allowed, and not because none was confirmed. `hold` has the end of the
/// hold that `--max-hold` allows, and the time between two renewals.
fn is_overdue(valid_until: Moment, hold: Option<(Moment, Duration)>) -> bool {
    // The hold began a little earlier than this process heard of it, so its end is a little earlier too. What is nearer to it
    // than the next renewal could not have lasted longer in any case.
    hold.is_some_and(|(end, renewal)| valid_until.after(renewal) >= end)
}

/// The end of validity on the clock of all processes. It is never late: the clock is read first.
fn valid_until(watch: &LeaseWatch) -> Moment {
    let now = Moment::now();
    now.after(watch.remaining())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_of_a_hold_is_told_from_an_outage() {
        let at = |seconds: u64| Moment::from_nanos(seconds * 1_000_000_000);
        let hold = Some((at(160), Duration::from_secs(10)));
        assert!(is_overdue(at(160), hold) && is_overdue(at(150), hold));
        assert!(!is_overdue(at(149), hold), "a renewal was due that was not confirmed");
        assert!(!is_overdue(at(160), None));
    }
}
