//! The guardian: the process between the wrapper and the job, which ends the job in time.
//!
//! It has a process group of its own, so that no signal for the job's group reaches it, and it does no I/O but with
//! the wrapper: nothing holds it up. All orphans of the job become its children, so that it is done when it has none.

use std::io::PipeReader;
use std::os::fd::AsFd as _;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitStatus, getppid, kill_process, setpgid};

use super::claim::{Claim, Claims};
use super::clock::{self, Moment, Waiter};
use super::deadline::{Deadline, Reason, Spans, Step};
use super::job::{self, Job};
use super::process::{self, Family, Reaped};
use super::report::{JobEnd, Link, News, Report};
use super::signal::Signals;

/// How soon it looks again for processes that it killed.
const AGAIN: Duration = Duration::from_millis(2);
/// How soon it wakes a wrapper again that should go on with its job.
const WAKE: Duration = Duration::from_millis(50);
/// A count of the processes is followed by a pause of so many times its length.
const COUNT: u32 = 50;
/// To kill orphans takes so many times its length until the next turn.
const ORPHANS: u32 = 4;
/// How soon it looks again for processes that are left in the control group of the job, and are not its children.
const LEFT: Duration = Duration::from_millis(20);
/// How long a dying wrapper may take to be gone.
const DYING: Duration = Duration::from_secs(5);
/// How long no process may be found, while the system says that there are some, before it gives up.
const UNSEEN: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Guardian {
    link: Link,
    signals: Signals,
    waiter: Waiter,
    wrapper: Pid,
    deadline: Deadline,
    spans: Spans,
    /// When to count the processes again.
    count: Moment,
    /// The main process, until it has ended.
    main: Option<Pid>,
    /// Tells whether the program of the main process began, until it did.
    start: Option<PipeReader>,
    /// When to wake the wrapper next, while it does not say that it is awake.
    wake: Option<Moment>,
    /// Whether the main process is stopped.
    is_stopped: bool,
    family: Family,
    /// When to kill next, and how long to wait after that.
    kill: (Moment, Duration),
    /// Whether a child has ended since it killed.
    has_reaped: bool,
    /// When to kill the orphans of those that have ended.
    orphans: Moment,
    /// Since when it finds nobody to kill.
    unseen: Option<Moment>,
    /// Whether no process is left, or none can be found.
    is_done: bool,
    /// Whether there are processes that it cannot find.
    has_given_up: bool,
    /// What the wrapper holds.
    claims: Claims,
    /// Whether the wrapper has said that it needs no guardian any more.
    is_over: bool,
}

/// What a dead wrapper held, and until when it is valid.
pub(crate) type Legacy = (Claim, Moment);

/// Runs the guardian in a process of its own, to the end of the job. Returns what the wrapper held if it is dead, and no
/// process of the job is left.
pub(crate) fn run(
    mut link: Link,
    signals: Signals,
    job: &Job,
    spans: Spans,
    wrapper: Pid,
) -> std::io::Result<Option<Legacy>> {
    name_process();
    if job.group.is_some() {
        setpgid(None, None)?;
    }
    process::adopt_orphans()?;
    let waiter = Waiter::new()?;
    let mut claims = Claims::default();
    let start = await_start(&mut link, &waiter, &mut claims)?;
    let Some((valid_until, token, news)) = start else { return Ok(None) };
    if link.is_closed() || news.contains(&News::Over) {
        let is_ours = !news.contains(&News::Over) && await_death(wrapper);
        return Ok(is_ours.then(|| claims.whole()).flatten().zip(Some(valid_until)));
    }
    let mut deadline = Deadline::new(spans, valid_until);
    if news.contains(&News::Lost) {
        deadline.end(Moment::now(), Reason::Lost);
    }
    if !matches!(deadline.step(Moment::now()), Step::Wait(_)) {
        link.send(Report::NotStarted(None));
        return Ok(None);
    }
    // A busy machine must not keep the processor from this process when the job is to be killed.
    let usual = process::go_first();
    let started = job.start(token, usual);
    if job.group.is_none() {
        setpgid(None, None)?;
    }
    // The job alone has the standard streams: the reader of its output sees the end when the job closes it.
    let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    let (main, start) = match started {
        Ok((main, start)) => (main, start),
        Err(error) => {
            link.send(Report::NotStarted(Some(job::number_of(&error))));
            return Ok(None);
        }
    };
    let mut guardian = Guardian {
        link,
        signals,
        waiter,
        wrapper,
        deadline,
        spans,
        count: Moment::now(),
        main: Some(main),
        start: Some(start),
        wake: None,
        is_stopped: false,
        family: Family::of(main, job.control.clone()),
        kill: (Moment::now(), AGAIN),
        has_reaped: false,
        orphans: Moment::now(),
        unseen: None,
        is_done: false,
        has_given_up: false,
        claims,
        is_over: false,
    };
    news.into_iter().for_each(|news| guardian.hear(news));
    guardian.attend()
}

/// By its name, which a fork leaves as it is, killall(1) would find it together with the wrapper.
fn name_process() {
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::set_name(c"job-guardian");
}

/// Waits until the wrapper, which has closed the link, is not the parent any more: all its threads have ended, and none
/// of them works for the lock. Returns whether that is so.
fn await_death(wrapper: Pid) -> bool {
    let end = Moment::now().after(DYING);
    while getppid() == Some(wrapper) && Moment::now() < end {
        std::thread::sleep(AGAIN);
    }
    getppid() != Some(wrapper)
}

/// Waits for the grant. Returns nothing if the wrapper ended before it, and else what came with the grant too: the
/// lock may be lost already, and the wrapper may have ended after it.
fn await_start(
    link: &mut Link,
    waiter: &Waiter,
    claims: &mut Claims,
) -> std::io::Result<Option<(Moment, u64, Vec<News>)>> {
    let (mut start, mut others) = (None, Vec::new());
    loop {
        for news in link.receive() {
            claims.hear(&news);
            match news {
                News::Start { valid_until, token } => start = Some((valid_until, token)),
                other => others.push(other),
            }
        }
        match start {
            Some((valid_until, token)) => return Ok(Some((valid_until, token, others))),
            None if link.is_closed() => return Ok(None),
            None => waiter.wait(&[link.as_fd()], Moment::now().after(Duration::from_secs(60)))?,
        }
    }
}

impl Guardian {
    fn attend(mut self) -> std::io::Result<Option<Legacy>> {
        loop {
            while self.signals.next().is_some() {}
            self.link.receive().into_iter().for_each(|news| self.hear(news));
            if self.link.is_closed() {
                self.deadline.abandon();
            }
            self.hear_start();
            let is_childless = !self.is_done && !self.reap();
            if is_childless && !self.family.has_members() {
                self.is_done = true;
                self.link.send(Report::Clean);
            }
            let now = Moment::now();
            self.wake_wrapper(now);
            // It stays until the wrapper has done the rest, or is dead.
            if self.is_done && (self.is_over || self.link.is_closed() || self.has_given_up) {
                return Ok(self.legacy());
            }
            let next = self.act(now);
            // No signal tells of the end of those that are not its children.
            let next = if is_childless { next.min(now.after(LEFT)) } else { next };
            let until = self.wake.map_or(next, |wake| wake.min(next));
            let start = self.start.as_ref().map(|start| start.as_fd());
            let inputs = [Some(self.link.as_fd()), self.signals.input(), start];
            // A closed link is always ready.
            let inputs = inputs.into_iter().skip(usize::from(self.link.is_closed())).flatten();
            self.waiter.wait(&inputs.collect::<Vec<_>>(), until)?;
        }
    }

    /// What is left to give back.
    fn legacy(&self) -> Option<Legacy> {
        let is_ours = !self.is_over && !self.has_given_up && await_death(self.wrapper);
        is_ours.then(|| self.claims.whole()).flatten().zip(Some(self.deadline.valid_until()))
    }

    fn hear(&mut self, news: News) {
        match news {
            News::Start { .. } | News::Claim { .. } | News::Owner(_) => {}
            News::Over => self.is_over = true,
            News::Valid(until) => {
                self.deadline.extend(until);
                self.measure();
            }
            News::Lost => self.deadline.end(Moment::now(), Reason::Lost),
            News::Awake => self.wake = None,
            // The number of the main process is its own until this process has waited for it.
            News::Signal(number) => {
                if let (Some(main), Some(signal)) = (self.main, Signal::from_named_raw(number)) {
                    let _ = kill_process(main, signal);
                }
            }
        }
    }

    /// Leaves more time for the killing of a crowd.
    fn measure(&mut self) {
        let begin = Moment::now();
        if begin < self.count {
            return;
        }
        let (processes, each) = self.family.size();
        let end = Moment::now();
        self.count = end.after(end.since(begin) * COUNT);
        let dying = each.saturating_mul(u32::try_from(processes).unwrap_or(u32::MAX));
        let margin = self.spans.widened(dying).margin;
        self.deadline.set_margin(margin);
        self.link.send(Report::Margin(u64::try_from(margin.as_nanos()).unwrap_or(u64::MAX)));
    }

    /// Passes on whether the program began, if that is known.
    fn hear_start(&mut self) {
        let Some(start) = self.start.take_if(|start| clock::is_ready(start.as_fd())) else {
            return;
        };
        self.link.send(match job::read_error(start) {
            Some(error) => Report::NotStarted(Some(error)),
            None => Report::Started,
        });
    }

    /// Waits for all children that have ended. Returns whether any is left.
    fn reap(&mut self) -> bool {
        loop {
            match process::reap() {
                Reaped::Changed(pid, status) if Some(pid) == self.main => self.main_changed(status),
                Reaped::Changed(pid, status) => self.note_end(pid, status),
                Reaped::Nothing => return true,
                Reaped::NoChild => return false,
            }
        }
    }

    fn note_end(&mut self, pid: Pid, status: WaitStatus) {
        if job_end(status).is_some() {
            self.family.forget(pid);
            self.has_reaped = true;
        }
    }

    fn main_changed(&mut self, status: WaitStatus) {
        // That it began comes before all else.
        self.hear_start();
        if let Some(signal) = status.stopping_signal() {
            // It went on meanwhile, and its shell waits for news of the wrapper.
            if std::mem::replace(&mut self.is_stopped, true) {
                self.link.send(Report::Continued);
                self.wake = Some(Moment::now());
            }
            self.link.send(Report::Stopped(signal));
            return;
        }
        if let Some(end) = job_end(status) {
            if let Some(main) = self.main.take() {
                self.note_end(main, status);
            }
            self.deadline.end(Moment::now(), Reason::Finished);
            self.link.send(Report::Ended(end));
        } else {
            self.link.send(Report::Continued);
        }
        if std::mem::take(&mut self.is_stopped) {
            self.wake = Some(Moment::now());
        }
    }

    /// The wrapper stops when the job does, and perhaps only after the job goes on again. So it is woken until it
    /// says that it heard of that.
    fn wake_wrapper(&mut self, now: Moment) {
        if self.wake.is_some_and(|wake| wake <= now) && getppid() == Some(self.wrapper) {
            let _ = kill_process(self.wrapper, Signal::CONT);
            self.wake = Some(now.after(WAKE));
        }
    }

    /// Does what is due. Returns when to look again.
    fn act(&mut self, now: Moment) -> Moment {
        if self.is_done {
            return now.after(Duration::from_secs(60));
        }
        loop {
            match self.deadline.step(now) {
                Step::Wait(until) => return until,
                Step::Terminate(reason) => {
                    self.link.send(Report::Ending(reason));
                    self.family.terminate();
                }
                Step::Kill => {
                    // Else the wrapper would take the end of the job for its own.
                    if let Some(reason) = self.deadline.unannounced() {
                        self.link.send(Report::Ending(reason));
                    }
                    return self.kill(now);
                }
            }
        }
    }

    /// Kills, if that is due. Returns when to do it again.
    fn kill(&mut self, now: Moment) -> Moment {
        let (due, pause) = self.kill;
        if due <= now {
            self.has_reaped = false;
            let found = self.family.kill();
            let begin = *self.unseen.get_or_insert(now);
            if found > 0 {
                self.unseen = None;
            } else if now >= begin.after(UNSEEN) {
                self.link.send(Report::Unseen);
                (self.is_done, self.has_given_up) = (true, true);
            }
            // What cannot be killed at once, such as a process that waits for a dead file server, is
            // tried again for ever, ever more rarely.
            let next = (pause * 2).min(Duration::from_secs(1));
            self.kill = (Moment::now().after(pause), next);
        } else if self.has_reaped && self.orphans <= now {
            // Its orphans have come, which nobody may have seen before.
            self.has_reaped = false;
            self.family.kill_children();
            let end = Moment::now();
            // Those that die need a processor too.
            self.orphans = end.after(end.since(now) * ORPHANS);
        }
        match self.has_reaped {
            _ if self.is_done => now,
            true => self.kill.0.min(self.orphans),
            false => self.kill.0,
        }
    }
}

fn job_end(status: WaitStatus) -> Option<JobEnd> {
    let exited = status.exit_status().map(JobEnd::Exited);
    exited.or_else(|| status.terminating_signal().map(JobEnd::Killed))
}
