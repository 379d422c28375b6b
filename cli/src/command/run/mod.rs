//! `leasehold run`: a job under a lock, none of whose processes outlives the lease.
//!
//! | process | group | what it does |
//! | --- | --- | --- |
//! | [`wrapper`], the one that was called | the guardian's, while the job runs | holds the lock, and tells the guardian until when |
//! | [`guardian`], its child | its own | ends the job before the lease ends, or at once when the wrapper is gone, and gives the lock back then |
//! | [`job`], its child | the one in which the wrapper was called | whatever it likes |
//!
//! The guardian is forked before this process has a second thread, and does nothing until the lock is held.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use clap::Args;
use leasehold::{Lease, LockOptions, Missed, Period};
use rustix::process::getpid;

use crate::connection::{ConnectionArguments, FoundUrl, Source};
use crate::duration::parse_duration;
use crate::failure::{Failure, say};
use crate::{status, warning};

mod acquire;
mod backstop;
mod claim;
mod clock;
mod deadline;
mod environment;
mod gate;
mod group;
mod guardian;
mod job;
mod outcome;
mod process;
mod report;
mod signal;
mod speaker;
mod wrapper;

use acquire::{Request, Share};
use deadline::Spans;
use environment::Environment;
use group::{Group, System};
use job::Job;
use outcome::Outcome;
use process::Family;
use report::Link;
use speaker::Speaker;
use wrapper::{Ending, Wrapper};

/// The longest grace without the option.
const USUAL_GRACE: Duration = Duration::from_secs(10);
/// The share of a lease that its grace may have, so that an outage may last for nearly as long again.
const GRACES_PER_LEASE: u32 = 3;
/// Of a lease, kept for the killing.
const MARGINS_PER_LEASE: u32 = 20;
/// The share of a lease that both may have for a crowd: until then, a renewal has had time.
const MARGINS_AND_GRACES_PER_LEASE: u32 = 2;
const LEAST_MARGIN: Duration = Duration::from_millis(20);
const MOST_MARGIN: Duration = Duration::from_secs(1);
/// How often news goes to the guardian.
const TICKS_PER_LEASE: u32 = 12;
const LEAST_TICK: Duration = Duration::from_millis(10);
const MOST_TICK: Duration = Duration::from_secs(1);

/// Run a job under a lock, so that no process of it is alive when the lease ends.
///
/// While the job runs, its lease is renewed. If that fails, or the lock is lost in another way, all processes of the job get
/// SIGTERM, and SIGKILL after --grace; that holds even if leasehold itself is killed or stopped. When the main process of the
/// job has ended, all other processes of the job end too, daemons that it started among them, and then the lock is released.
///
/// Nobody can kill a process in uninterruptible sleep (state D), which waits for a file server that is away, for example: what
/// it has begun may be written after the lease.
///
/// The exit status, the streams and the signals are those of the job. At a terminal, a run that waits for its lock says whom
/// it waits for after a second.
#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// Do not wait: give up at once if the lock is held.
    #[arg(short, long, visible_alias = "nb", conflicts_with = "wait")]
    nonblock: bool,
    /// Give up after waiting for this long; by default there is no limit.
    #[arg(short, long, value_name = "TIME", value_parser = parse_duration)]
    wait: Option<Duration>,
    /// Hold the lock alone; this is the default.
    #[arg(short = 'x', long, visible_short_alias = 'e', conflicts_with_all = ["shared", "of"])]
    exclusive: bool,
    /// Share the lock with other runs that have this option: a read lock.
    #[arg(short, long, conflicts_with = "of")]
    shared: bool,
    /// Take K permits of a semaphore.
    #[arg(long, value_name = "K", default_value_t = 1, requires = "of")]
    permits: u32,
    /// The name is a semaphore with N permits.
    #[arg(long, value_name = "N")]
    of: Option<u32>,
    /// The exit status if the lock could not be obtained, or if a job that failed is not due for another try. Choose one
    /// that the job does not return.
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = 1)]
    conflict_exit_code: u8,
    /// How long the lock outlives a machine that dies. It is renewed after each third of that time.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_duration)]
    lease: Duration,
    /// For how long after its lease the lock comes back to this run if nobody else has taken it; default 0s. It is for an
    /// outage before the job begins, which it then does, and for one at its end: a success is still recorded with --once-per.
    /// While the job runs it changes nothing: the job is killed before its lease ends, as others may have the lock from then
    /// on.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, conflicts_with_all = ["shared", "of"])]
    recoverable: Option<Duration>,
    /// How long the job has from SIGTERM to SIGKILL: at most a third of the lease, and of --max-hold; default 10s, or
    /// that third if it is less.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    grace: Option<Duration>,
    /// End the job before it has held the lock for this long: it gets SIGTERM a grace and a moment earlier; by default
    /// there is no limit.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    max_hold: Option<Duration>,
    /// Run only if no run has succeeded in this period, by the server's clock. Periods begin at multiples of their length
    /// since 1970, UTC: those of 24h at midnight UTC. A run that fails may be tried again in the same period.
    #[arg(long, value_name = "PERIOD", value_parser = parse_duration, conflicts_with_all = ["shared", "of"])]
    once_per: Option<Duration>,
    /// With --once-per, begin each period this much later.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = parse_duration, requires = "once_per")]
    offset: Duration,
    /// With --once-per, the exit status if the job has already succeeded in this period.
    #[arg(long, value_name = "CODE", default_value_t = status::DONE, requires = "once_per")]
    skipped_status: u8,
    /// With --once-per, do not try again until this time has passed since the last failure, on whichever machine.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = parse_duration, requires = "once_per")]
    retry_after: Duration,
    /// With --once-per, do not try again after this many failures in a period; by default there is no limit.
    #[arg(long, value_name = "N", requires = "once_per", value_parser = clap::value_parser!(u32).range(1..))]
    max_tries: Option<u32>,
    /// With --once-per, also run for periods that were missed, the oldest first, up to this many before the present one;
    /// default 0. Each call runs the job once.
    #[arg(long, value_name = "N", requires = "once_per")]
    catch_up: Option<u32>,
    /// Send the job this signal when somebody asks for its lock, as `leasehold ask` does: a name such as TERM or USR1, or a
    /// number. Without this option the job is not told.
    #[arg(long, value_name = "SIGNAL", value_parser = signal::parse)]
    on_ask: Option<i32>,
    /// The name of this job in `ls`, `top` and `show`; default the file name of CMD.
    #[arg(long, value_name = "TEXT")]
    label: Option<String>,
    /// Say nothing while the run waits, if the lock is held, or if the job is not due, so that cron sends no mail. Errors and
    /// lost locks are still reported.
    #[arg(short, long)]
    quiet: bool,
    /// Say whom the run waits for even if the standard error is not a terminal, how the processes of the job are found and
    /// ended here, and how the job ended.
    #[arg(short, long, conflicts_with = "quiet")]
    verbose: bool,
    /// Leave the variable with the URL, and perhaps its password, in the environment of the job.
    #[arg(long)]
    keep_url: bool,
    /// Refused, since the output is the job's. It hides the option of the other subcommands from the help.
    #[arg(long, hide = true)]
    pub(crate) json: bool,
    /// The name of the lock.
    name: OsString,
    /// The job: a program and its arguments.
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true)]
    command: Vec<OsString>,
}

impl RunArguments {
    pub(crate) fn run(self, connection: &ConnectionArguments) -> Result<ExitCode, Failure> {
        let spans = self.spans()?;
        process::check()?;
        // Both processes connect with it, and it may come from the standard input.
        let FoundUrl { url, source } = connection.whole_url()?;
        let withheld = match source {
            Source::Variable(name) if !self.keep_url => Some(name),
            _ => None,
        };
        let request = self.request();
        let speaker =
            Speaker::new(request.name.clone(), self.quiet, self.verbose, connection.hint());
        let environment = Environment {
            name: self.name,
            holder: environment::holder(),
            lease: self.lease,
            withheld,
        };
        let program = self.command.first().map(|program| program.display().to_string());
        let blocked = signal::blocked()?;
        let tick = (self.lease / TICKS_PER_LEASE).clamp(LEAST_TICK, MOST_TICK);

        let (near, far) = Link::pair()?;
        let parent = getpid();
        let signals = signal::Signals::block()?;
        adopt_orphans()?;
        let control = control(self.verbose);
        let mut family = Family::before_fork(control.clone());
        let (command, group) = (self.command, process::group());
        let job = Job { command, environment, group, control: control.clone(), blocked };
        let Some(guardian) = job::fork()? else {
            drop(near);
            let legacy = guardian::run(far, signals, &job, spans, parent);
            if let Some(control) = control {
                control.remove();
            }
            if let Some((claim, until)) = legacy? {
                claim.release(connection, &url, &request.name, until);
            }
            std::process::exit(0);
        };
        drop(far);
        // Not before the fork: what is said then may need a thread.
        warning::show();
        let waiter = clock::Waiter::new()?;
        family.expect(guardian);
        let link = near;
        let mut wrapper = Wrapper {
            link,
            signals,
            waiter,
            guardian,
            group,
            has_begun: false,
            is_alone: false,
            family,
            spans,
            tick,
        };
        let ending = wrapper.run((connection, &url), &request, &speaker);
        drop(wrapper);
        // Of a guardian that was killed.
        if let Some(control) = control {
            control.remove();
        }
        match ending? {
            Ending::Ran(outcome) => {
                // Its status may be one of this program's.
                if self.verbose && matches!(outcome, Outcome::Ended(_)) {
                    say(&format_args!("the job ended by itself: {outcome}"));
                }
                outcome.finish(&program.unwrap_or_default())
            }
            Ending::NotHad => Ok(ExitCode::from(self.conflict_exit_code)),
            Ending::Skipped(undue) => {
                if !self.quiet {
                    say(&undue.text);
                }
                let status =
                    if undue.is_done { self.skipped_status } else { self.conflict_exit_code };
                Ok(ExitCode::from(status))
            }
        }
    }

    fn spans(&self) -> Result<Spans, Failure> {
        // A job that were told to end as soon as it has the lock would never begin.
        let longest = self.max_hold.map_or(self.lease, |limit| limit.min(self.lease));
        let most = longest / GRACES_PER_LEASE;
        let grace = self.grace.unwrap_or_else(|| USUAL_GRACE.min(most));
        if grace > most {
            let option = if longest < self.lease { "--max-hold" } else { "--lease" };
            let text = format!("--grace {grace:?} is more than a third of {option} {longest:?}");
            return Err(Failure::usage(text));
        }
        let margin = (longest / MARGINS_PER_LEASE).clamp(LEAST_MARGIN, MOST_MARGIN);
        if grace + margin >= longest {
            let option = if longest < self.lease { "--max-hold" } else { "--lease" };
            let text =
                format!("{option} {longest:?} is too short: it leaves no time to end the job");
            return Err(Failure::usage(text));
        }
        let most_margin = longest / MARGINS_AND_GRACES_PER_LEASE - grace;
        Ok(Spans { grace, margin, most_margin })
    }

    fn request(&self) -> Request {
        let lease =
            Lease::renewed(self.lease).recoverable_for(self.recoverable.unwrap_or_default());
        let options = LockOptions::new().lease(lease);
        let options = self.max_hold.map_or(options, |limit| options.max_hold(limit));
        let share = match self.of {
            Some(of) => Share::Permits { count: self.permits, of },
            None if self.shared => Share::Reading,
            None => match self.once_per {
                Some(period) => Share::Once(acquire::Job {
                    period: Period::every(period).offset(self.offset),
                    missed: self
                        .catch_up
                        .map_or(Missed::Skip, |at_most| Missed::CatchUp { at_most }),
                    retry_after: self.retry_after,
                    max_tries: self.max_tries,
                }),
                None => Share::Alone,
            },
        };
        let wait = if self.nonblock { Some(Duration::ZERO) } else { self.wait };
        Request {
            name: self.name.as_bytes().to_vec(),
            label: self.label.clone().unwrap_or_else(|| self.command_name()),
            options,
            lease: self.lease,
            max_hold: self.max_hold,
            share,
            wait,
            on_ask: self.on_ask,
        }
    }

    /// The file name of the program to run.
    fn command_name(&self) -> String {
        let program = self.command.first().map(Path::new);
        let name = program.and_then(|program| program.file_name());
        name.unwrap_or_default().to_string_lossy().into_owned()
    }
}

/// Makes a control group for the job, where that can be.
fn control(is_verbose: bool) -> Option<Rc<Group>> {
    let control = System::this().create();
    if is_verbose {
        match &control {
            Ok(group) => say(&format_args!(
                "the processes of the job are killed by cgroup.kill, in {}",
                group.folder().display()
            )),
            Err(why) => say(&format_args!(
                "the processes of the job are killed one by one, as /proc lists them, and not by cgroup.kill: {why}"
            )),
        }
    }
    control.ok().map(Rc::new)
}

/// Makes this process the parent of the orphans of its job.
fn adopt_orphans() -> Result<(), Failure> {
    process::adopt_orphans().map_err(|error| {
        let text = format!(
            "orphans of the job could not be ended: this process may not adopt them \
             (PR_SET_CHILD_SUBREAPER): {error}"
        );
        Failure::new(status::INTERNAL, text)
    })
}
