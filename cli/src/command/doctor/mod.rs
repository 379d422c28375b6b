//! `leasehold doctor`: what holds on this server, line by line.
//!
//! | module | its part |
//! | --- | --- |
//! | `check` | what a line is about |
//! | `finding` | what a line says, and the worst of them |
//! | `probe` | questions to one server, each of which may be denied |
//! | `node` | the servers that have locks: one, or the masters of a cluster; and those that may have them next |
//! | `clock`, `server`, `memory`, `durability`, `trial` | the checks, by what they are about |
//! | `permission`, `rule` | what the user may do, and the rule to add |

mod check;
mod clock;
mod durability;
mod finding;
mod memory;
mod node;
mod permission;
mod probe;
mod rule;
mod server;
mod trial;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Args;
use leasehold::{LockClient, redis};
use serde_json::{Value, json};

use crate::connection::ConnectionArguments;
use crate::failure::Failure;
use crate::name::{self, NameArgument};
use crate::report::json;
use check::Check;
use finding::{Finding, Level};
use node::Node;
use probe::Probe;
use rule::Use;

/// Check whether this server is fit for locks, and say how to mend what is not.
///
/// The exit status is 0 if all is well, 1 with a warning, and 2 with a fault: then no lock can be had, or no wait for one.
/// What the user may not ask is unknown, and counts as neither.
#[derive(Args, Debug)]
pub(crate) struct DoctorArguments {
    /// A name like those of your locks, where the user may use some names only. A lock of this name is taken and
    /// released.
    #[arg(long, default_value = "leasehold-doctor")]
    name: NameArgument,
    /// What the user needs permissions for: kinds of lock, or `once` for the jobs of `run --once-per`. Repeat it for each.
    #[arg(long = "kind", default_value = "mutex")]
    uses: Vec<Use>,
    /// Do not count the warnings of this check, as the second column names it. Repeat it for each.
    #[arg(long = "accept", value_name = "CHECK")]
    accepted: Vec<Check>,
}

impl DoctorArguments {
    pub(crate) fn run(
        self,
        connection: &ConnectionArguments,
        json: bool,
    ) -> Result<ExitCode, Failure> {
        let mut findings = self.examine(connection)?;
        findings.iter_mut().for_each(|finding| finding.accept(&self.accepted));
        let worst = findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Fine);
        if json {
            let all: Value = findings.iter().map(Finding::json).collect();
            json::print(json!({ "status": worst.word(), "findings": all }))?;
        } else {
            let mut output = std::io::stdout().lock();
            for finding in &findings {
                write!(output, "{finding}")?;
            }
        }
        Ok(ExitCode::from(worst.status()))
    }

    fn examine(&self, connection: &ConnectionArguments) -> Result<Vec<Finding>, Failure> {
        let url = connection.whole_url()?.url;
        let client = connection.builder_for(&url)?.announce(false).build()?;
        let name = name::bytes(&self.name);
        let user = crate::url::user(&url);
        let first = reachable(&client, name, connection.is_cluster());
        // A user that may not even ask the time cannot have a client.
        if let Err(error) = first.ask(&redis::cmd("TIME")) {
            if let Some(finding) = server::too_old(&error) {
                return Ok(vec![finding]);
            }
            return match rule::missing(&error.to_string()) {
                Some(rule) => Ok(vec![permission::no_connection(&error, &rule, &user)]),
                None => Err(error.into()),
            };
        }
        let mut findings = vec![server::topology(&first, connection)];
        for Node { name, address } in node::nodes(&first, connection.is_cluster()) {
            let probe = Probe::new(&client, name).by(&user);
            if let Some(finding) = server::unreachable(&probe) {
                findings.push(Finding { server: address, ..finding });
                continue;
            }
            let mut of_node = vec![server::version(&probe)];
            of_node.extend(clock::check(&probe));
            of_node.extend(permission::check(&probe, &self.uses));
            of_node.push(memory::check(&probe));
            of_node.extend(durability::check(&probe));
            of_node.push(trial::check(&client, &probe));
            of_node.iter_mut().for_each(|finding| finding.server.clone_from(&address));
            findings.extend(of_node);
        }
        let open = |address| connection.open_beside(&url, address);
        let bound = connection.max_clock_skew().unwrap_or(clock::USUAL_SKEW);
        findings.extend(clock::compare(&first, connection.is_cluster(), open, bound));
        Ok(findings)
    }
}

/// A probe of this name; in a cluster, where its master cannot be reached, of another name on one that can be.
fn reachable<'a>(client: &'a LockClient, name: &[u8], is_cluster: bool) -> Probe<'a> {
    /// Among this many names, each of a few masters has at least one, almost certainly.
    const TRIES: u32 = 16;
    let probe = Probe::new(client, name.to_vec());
    if !is_cluster || node::tag(name).is_some() || !server::is_silent(&probe) {
        return probe;
    }
    let others = (0..TRIES).map(|number| [name, b":", number.to_string().as_bytes()].concat());
    let mut others = others.map(|name| Probe::new(client, name));
    others.find(|other| !server::is_silent(other)).unwrap_or(probe)
}
