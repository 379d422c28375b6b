//! Where the master is, as sentinels tell.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use redis::{ConnectionAddr, ConnectionInfo, ErrorKind, RedisError, Value};

use crate::base::sync::{Arc, AtomicUsize, Mutex, Ordering};
use crate::base::time::{Clock, Moment};

/// The channel on which a sentinel tells that there is a new master.
pub(crate) const SWITCHES: &[u8] = b"+switch-master";

/// Sentinels tell each other of a fail-over every two seconds. An older word that all of them give for
/// so long after it was not late: they were told to watch the master anew, and count from the start.
const SETTLED: Duration = Duration::from_secs(10);

/// Sentinels that watch one master.
pub(crate) struct Sentinels {
    nodes: Vec<ConnectionInfo>,
    master: String,
    /// How to speak to the master, wherever it is.
    template: ConnectionInfo,
    clock: Arc<dyn Clock>,
    /// Who is asked first: the one that answered last.
    first: AtomicUsize,
    known: Mutex<Option<Known>>,
}

/// Where the master was last, and since when.
#[derive(Debug)]
struct Known {
    master: Master,
    since: Moment,
}

/// What a sentinel tells of its master.
#[derive(Debug, PartialEq, Eq)]
struct Master {
    /// Grows with every fail-over.
    epoch: u64,
    address: (String, u16),
}

impl Sentinels {
    /// The host of `template` is the master's name.
    pub(crate) fn new(
        nodes: Vec<ConnectionInfo>,
        template: ConnectionInfo,
        clock: Arc<dyn Clock>,
    ) -> Sentinels {
        let master = match template.addr() {
            ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host.clone(),
            _ => String::new(),
        };
        let (first, known) = (AtomicUsize::new(0), Mutex::new(None));
        Sentinels { nodes, master, template, clock, first, known }
    }

    /// Asks one after the other until one knows the master, each for at most `each`, and all within
    /// `most`. Answers where it is, and whether that is elsewhere than before.
    ///
    /// After a fail-over some sentinels know of the new master seconds before the others do. Who was
    /// told of one believes no older word, and who was told nothing yet, or `asks_all`, asks them all.
    pub(crate) fn locate(
        &self,
        each: Duration,
        most: Duration,
        asks_all: bool,
    ) -> Result<(ConnectionInfo, bool), RedisError> {
        let deadline = self.clock.now().after(most);
        let known = self.known.lock().as_ref().map(|known| known.master.epoch);
        let first = self.first.load(Ordering::Relaxed) % self.nodes.len();
        let mut last = None;
        let (mut best, mut older): (Option<Master>, Vec<Master>) = (None, Vec::new());
        for number in (first..first + self.nodes.len()).map(|number| number % self.nodes.len()) {
            let left = deadline.since(self.clock.now()).min(each);
            if left.is_zero() {
                break;
            }
            match self.ask(&self.nodes[number], left) {
                Ok(found) if Some(found.epoch) >= known => {
                    if best.as_ref().is_none_or(|best| best.epoch < found.epoch) {
                        self.first.store(number, Ordering::Relaxed);
                        best = Some(found);
                    }
                    if known.is_some() && !asks_all {
                        break;
                    }
                }
                Ok(found) => older.push(found),
                Err(error) => last = Some(error),
            }
        }
        if best.is_none() && older.len() > self.nodes.len() / 2 && self.forget() {
            best = older.into_iter().max_by_key(|found| found.epoch);
        }
        if let Some(best) = best {
            let info = self.at(best.address.clone());
            return Ok((info, self.note(best)));
        }
        let reason = last.map_or_else(|| "their word is out of date".to_owned(), |e| e.to_string());
        let text = format!("of {} sentinels none told it: {reason}", self.nodes.len());
        Err(RedisError::from((ErrorKind::Io, "where the master is", text)))
    }

    fn ask(&self, node: &ConnectionInfo, left: Duration) -> Result<Master, RedisError> {
        let client = redis::Client::open(node.clone())?;
        let mut connection = client.get_connection_with_timeout(left)?;
        connection.set_read_timeout(Some(left))?;
        connection.set_write_timeout(Some(left))?;
        let told: HashMap<String, String> =
            redis::cmd("SENTINEL").arg("MASTER").arg(&self.master).query(&mut connection)?;
        // Whoever connects to one that hangs loses the time in which another takes its place.
        if told.get("flags").is_some_and(|flags| flags.contains("_down")) {
            let text = "a sentinel takes the master for dead".to_owned();
            return Err(RedisError::from((ErrorKind::Io, "the master is down", text)));
        }
        let number = |field: &str| told.get(field)?.parse().ok();
        let master = || {
            let port = told.get("port")?.parse().ok()?;
            Some(Master {
                epoch: number("config-epoch")?,
                address: (told.get("ip")?.clone(), port),
            })
        };
        let odd = || RedisError::from((ErrorKind::Parse, "a sentinel's answer"));
        master().ok_or_else(odd)
    }

    /// Lets an older word count if what is known was known for long. Whether it does.
    fn forget(&self) -> bool {
        let mut known = self.known.lock();
        let now = self.clock.now();
        let Some(known) = known.as_mut().filter(|known| now.since(known.since) > SETTLED) else {
            return false;
        };
        known.master.epoch = 0;
        true
    }

    /// Notes where the master is now. Answers whether it was known to be elsewhere.
    fn note(&self, master: Master) -> bool {
        let mut known = self.known.lock();
        let since = match &*known {
            Some(known) if known.master.epoch > master.epoch => return false,
            Some(known) if known.master == master => return false,
            _ => self.clock.now(),
        };
        let address = master.address.clone();
        let before = known.replace(Known { master, since });
        before.is_some_and(|before| before.master.address != address)
    }

    fn at(&self, (host, port): (String, u16)) -> ConnectionInfo {
        let address = match self.template.addr().clone() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure, tls_params }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        self.template.clone().set_addr(address)
    }

    /// Whether a message on [`SWITCHES`] is about this master.
    pub(crate) fn is_ours(&self, payload: &[u8]) -> bool {
        payload.split(|&byte| byte == b' ').next() == Some(self.master.as_bytes())
    }

    /// The one that was told of cannot be spoken to: who told it is asked last the next time.
    pub(crate) fn doubt(&self) {
        self.first.fetch_add(1, Ordering::Relaxed);
    }

    /// The sentinel that is asked first.
    pub(crate) fn first(&self) -> &ConnectionInfo {
        &self.nodes[self.first.load(Ordering::Relaxed) % self.nodes.len()]
    }
}

impl fmt::Debug for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The nodes and the template may have passwords.
        f.debug_struct("Sentinels").field("master", &self.master).finish_non_exhaustive()
    }
}

/// Whether the answer to ROLE is a master's.
pub(crate) fn is_master(role: &Value) -> bool {
    let Value::Array(parts) = role else { return false };
    parts.first().is_some_and(|name| {
        redis::from_redis_value_ref::<String>(name).is_ok_and(|name| name == "master")
    })
}
