//! The locks that are in use.

use std::collections::{HashSet, VecDeque};
use std::fmt;

use crate::base::error::{Error, Result};
use crate::base::glob::Glob;
use crate::base::inspection::Inspection;
use crate::base::kind::Kind;
use crate::base::name::{Name, ShownName};
use crate::base::sync::Arc;
use crate::client::LockClient;
use crate::kind::election::ElectionKind;
use crate::kind::mutex::MutexKind;
use crate::kind::reentrant::ReentrantKind;
use crate::kind::{KINDS, SHARED_KINDS};
use crate::protocol::index::{ScanPosition, TYPES};
use crate::protocol::inspection::View;
use crate::protocol::lock_kind::LockKind;
use crate::protocol::target::Target;
use crate::wire::failure::Failure;

/// How many locks are inspected in one round trip.
const BATCH: usize = 1_000;

impl LockClient {
    /// What is locked or waited for now, for names that match a pattern.
    ///
    /// In the pattern `*` stands for any bytes and `?` for one byte; everything else stands for itself. It
    /// is about the names as this client writes them, without its
    /// [prefix](crate::LockClientBuilder::name_prefix), and names without that prefix are not shown.
    ///
    /// Clients of this library [announce](crate::LockClientBuilder::announce) what they hold or wait for
    /// longer than a second, mostly within three seconds. This reads their announcements in one round trip, and
    /// inspects 1,000 locks in each further one. It shows what is locked or waited for at that
    /// moment, in no order. It writes nothing and does not scan the keys of the server; what other libraries
    /// lock is found by [`with_scan`](Locks::with_scan).
    ///
    /// A [`QuorumClient`](crate::QuorumClient) has no such list: none of its servers knows which locks are
    /// held. Its locks can be [inspected](crate::Mutex::inspect) by name.
    ///
    /// # Errors
    ///
    /// When Redis cannot be asked, or denies it.
    ///
    /// ```
    /// # fn demo(client: &leasehold::LockClient) -> leasehold::Result<()> {
    /// for lock in client.locks("orders:*")? {
    ///     let lock = lock?;
    ///     println!("{lock}"); // "mutex orders:42: held by billing, process 4711 on web-3, …"
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn locks(&self, pattern: impl AsRef<[u8]>) -> Result<Locks> {
        let entries = self.engine().ask(|it, deadline| it.server()?.announced(deadline))?;
        let mut locks = Locks {
            client: self.clone(),
            pattern: Glob::new(self.name_prefix(), pattern.as_ref()),
            scan: None,
            seen: HashSet::new(),
            candidates: Vec::new(),
            inspected: VecDeque::new(),
        };
        for (kind, name) in entries {
            // A later version may announce kinds that this one does not know.
            if let Some(kind) = KINDS.iter().chain(&SHARED_KINDS).find(|known| known.name() == kind)
            {
                locks.add(*kind, &name, false);
            }
        }
        Ok(locks)
    }
}

impl LockClient {
    /// The locks of this name that are in use, whatever their kind: none if nobody holds or waits for one.
    ///
    /// It takes one round trip. A string is a mutex and a hash is a reentrant lock, also where another program wrote
    /// it, unless it is [data](crate::guide::limits#what-is-taken-for-a-lock). There is more than one only where nobody
    /// holds the name and processes wait for it as locks of several kinds. A user that may not inspect one of the kinds
    /// gets the others.
    ///
    /// # Errors
    ///
    /// [`is_config`](crate::Error::is_config) for a name that no lock can have,
    /// [`is_wrong_type`](crate::Error::is_wrong_type) if the key is a lock of no kind, and when Redis cannot be
    /// asked.
    ///
    /// ```
    /// # fn demo(client: &leasehold::LockClient) -> leasehold::Result<()> {
    /// for lock in client.locks_named("orders:42")? {
    ///     println!("{lock}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn locks_named(&self, name: impl AsRef<[u8]>) -> Result<Vec<ListedLock>> {
        let (engine, name) = (self.engine(), name.as_ref());
        let kinds = KINDS.iter().chain(&SHARED_KINDS);
        let named = |kind: &&'static dyn LockKind| {
            Ok(engine.protocol.target(*kind, self.name(*kind, name)?))
        };
        let targets: Vec<_> = kinds.map(named).collect::<Result<_>>()?;
        let inspections =
            engine.ask(|it, deadline| it.inspect_all(&targets, View::Found, deadline));
        let (mut found, mut is_inspected, mut refusal) = (Vec::new(), false, None);
        for (target, inspection) in targets.iter().zip(inspections) {
            match inspection {
                Ok(inspection) => {
                    is_inspected = true;
                    let kind = target.kind().kind();
                    if in_use(&inspection) {
                        found.push(ListedLock { name: name.to_vec(), kind, inspection });
                    }
                }
                Err(failure) => {
                    let is_other = failure.is_wrong_type() || failure.is_denied();
                    let is_data =
                        failure.is_data() && !refusal.as_ref().is_some_and(Error::is_denied);
                    let error = Error::from(failure).of(target.name());
                    if !is_other {
                        return Err(error);
                    }
                    // A missing permission says more than a wrong type, and what the key is says more than what
                    // it is not.
                    if error.is_denied() || is_data || refusal.is_none() {
                        refusal = Some(error);
                    }
                }
            }
        }
        match refusal {
            Some(error) if !is_inspected => Err(error),
            _ => Ok(found),
        }
    }

    /// The mutex of this name, if it is in use.
    ///
    /// The caller states that the key is a mutex. So this also returns a string that
    /// [`locks_named`](Self::locks_named) takes for data: one without a time to live that this library did not write.
    ///
    /// # Errors
    ///
    /// Those of `locks_named`; [`is_wrong_type`](crate::Error::is_wrong_type) if the key is not a string.
    ///
    /// ```
    /// # fn demo(client: &leasehold::LockClient) -> leasehold::Result<()> {
    /// if let Some(lock) = client.mutex_named("orders:42")? {
    ///     println!("{}", lock.inspection());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn mutex_named(&self, name: impl AsRef<[u8]>) -> Result<Option<ListedLock>> {
        let name = name.as_ref();
        let inspection = self.mutex(name)?.inspect()?;
        let kind = MutexKind.kind();
        Ok(in_use(&inspection).then(|| ListedLock { name: name.to_vec(), kind, inspection }))
    }
}

/// Whether anybody holds the lock or waits for it.
fn in_use(inspection: &Inspection) -> bool {
    !inspection.holders().is_empty() || inspection.waiting().is_some_and(|it| it > 0)
}

/// An iterator over the locks that are in use; see [`LockClient::locks`].
///
/// An item is an error where one lock could not be inspected, or a scan could not go on; a scan ends with that. A
/// scan that finds nothing for the time of one command returns an error, too, and goes on with the next item.
#[derive(Debug)]
#[must_use = "an iterator does nothing until it is used"]
pub struct Locks {
    client: LockClient,
    pattern: Glob,
    /// Where the scan goes on.
    scan: Option<ScanPosition>,
    /// What was listed. What is no lock is not kept: a scan may find any number of such keys.
    seen: HashSet<(Kind, Name)>,
    candidates: Vec<Candidate>,
    inspected: VecDeque<Result<ListedLock>>,
}

/// A lock that is to be inspected.
#[derive(Debug)]
struct Candidate {
    target: Arc<Target>,
    /// Whether it is a key that a scan has found, which need not be a lock.
    is_found: bool,
}

impl Locks {
    /// Also scans all keys of the server, or of all masters of a cluster, for locks that nobody announced: of
    /// other libraries, of clients that do not announce, and those that began a moment ago.
    ///
    /// Each matching string counts as a mutex, each hash as a reentrant lock, and each sorted set with the members
    /// of a semaphore or a read-write lock as one, unless it is
    /// [data](crate::guide::limits#what-is-taken-for-a-lock). So use a pattern that matches only names of locks: any
    /// other string with a time to live counts as the lock of another program. The scan goes on while the iterator
    /// is used, by `SCAN` in steps
    /// of about 1,000 keys, so a step keeps the server busy for long only where a single value that
    /// matches is huge. It may miss locks that are taken or released meanwhile. In a cluster the scan ends with
    /// an error if the node that it goes through is no master any more.
    ///
    /// ```
    /// # fn demo(client: &leasehold::LockClient) -> leasehold::Result<()> {
    /// let all = client.locks("orders:*")?.with_scan();
    /// println!("{} locks", all.filter_map(Result::ok).count());
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_scan(mut self) -> Locks {
        self.scan = Some(ScanPosition::default());
        self
    }

    fn add(&mut self, kind: &'static dyn LockKind, key: &[u8], is_found: bool) {
        // Keys beside locks have reserved names.
        let Ok(name) = Name::new(b"", key) else { return };
        if self.pattern.rest(key).is_some() && !self.seen.contains(&(kind.kind(), name.clone())) {
            let target = self.client.engine().protocol.target(kind, name);
            self.candidates.push(Candidate { target, is_found });
        }
    }

    fn inspect_some(&mut self) {
        let batch = self.candidates.split_off(self.candidates.len().saturating_sub(BATCH));
        let targets: Vec<_> = batch.iter().map(|candidate| Arc::clone(&candidate.target)).collect();
        // A batch has either announced keys or keys from a scan: the scan goes on only when no candidate is left.
        let is_found = batch.iter().any(|candidate| candidate.is_found);
        let view = if is_found { View::Found } else { View::Waiters };
        let engine = self.client.engine();
        let inspections = engine.ask(|it, deadline| it.inspect_all(&targets, view, deadline));
        for (candidate, inspection) in batch.iter().zip(inspections) {
            let listed = self.listed(candidate, inspection);
            self.inspected.extend(listed);
        }
    }

    /// What is shown of a lock, if it is in use.
    fn listed(
        &mut self,
        candidate: &Candidate,
        inspection: std::result::Result<Inspection, Failure>,
    ) -> Option<Result<ListedLock>> {
        let target = &candidate.target;
        match inspection {
            Ok(inspection) => {
                let kind = target.kind().kind();
                let name = self.pattern.rest(target.key())?.to_vec();
                // A scan may return a key twice.
                // The script has already ruled out data.
                (in_use(&inspection) && self.seen.insert((kind, target.name().clone())))
                    .then(|| Ok(ListedLock { name, kind, inspection }))
            }
            // It is no lock of this kind any more.
            Err(failure) if failure.is_wrong_type() => None,
            Err(failure) => Some(Err(Error::from(failure).of(target.name()))),
        }
    }

    /// Goes on with the scan. Returns whether it has not ended.
    fn scan_on(&mut self) -> bool {
        let Some(position) = &mut self.scan else { return false };
        // Each set is inspected as both kinds: the script of the other kind returns an error.
        let kinds: [&[&'static dyn LockKind]; TYPES.len()] =
            [&[&MutexKind, &ElectionKind], &[&ReentrantKind], &SHARED_KINDS];
        let kinds = kinds[position.kind];
        let (engine, pattern) = (self.client.engine(), &self.pattern);
        match engine.ask(|it, deadline| it.server()?.scan(position, pattern, deadline)).transpose()
        {
            Some(Ok(keys)) => {
                let found = keys.iter().flat_map(|key| kinds.iter().map(move |kind| (*kind, key)));
                found.for_each(|(kind, key)| self.add(kind, key, true));
            }
            Some(Err(failure)) => {
                self.scan = None;
                self.inspected.push_back(Err(failure.into()));
            }
            None => self.scan = None,
        }
        true
    }
}

impl Iterator for Locks {
    type Item = Result<ListedLock>;

    fn next(&mut self) -> Option<Result<ListedLock>> {
        let engine = Arc::clone(self.client.engine());
        let deadline = engine.exchange_deadline();
        loop {
            if let Some(next) = self.inspected.pop_front() {
                return Some(next);
            }
            if deadline <= engine.now() {
                return Some(Err(Error::timeout(
                    "the scan has found no lock for the time of one command; ask for the next lock once more",
                )));
            }
            if !self.candidates.is_empty() {
                self.inspect_some();
            } else if !self.scan_on() {
                return None;
            }
        }
    }
}

/// A lock that is in use.
#[derive(Clone, Debug)]
pub struct ListedLock {
    name: Vec<u8>,
    kind: Kind,
    inspection: Inspection,
}

impl ListedLock {
    /// Its name as this client takes it: without the client's prefix.
    ///
    /// ```
    /// # fn demo(client: &leasehold::LockClient) -> leasehold::Result<()> {
    /// for lock in client.locks("*")? {
    ///     println!("{}", String::from_utf8_lossy(lock?.name()));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// The [name](Kind::name) of its kind: `mutex`, `reentrant lock`, `semaphore` or `read-write lock`. Later versions may
    /// have more.
    ///
    /// ```
    /// # fn demo(client: &leasehold::LockClient) -> leasehold::Result<()> {
    /// let locks = client.locks("*")?.filter_map(Result::ok);
    /// println!("{} mutexes", locks.filter(|lock| lock.kind() == "mutex").count());
    /// # Ok(())
    /// # }
    /// ```
    pub fn kind(&self) -> &'static str {
        self.kind.name()
    }

    /// Its kind.
    ///
    /// ```
    /// use leasehold::Kind;
    ///
    /// # fn demo(client: &leasehold::LockClient) -> leasehold::Result<()> {
    /// for lock in client.locks("*")?.filter_map(Result::ok) {
    ///     if lock.lock_kind() == Kind::Semaphore {
    ///         println!("{:?}: {:?}", lock.name(), lock.inspection().permits());
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn lock_kind(&self) -> Kind {
        self.kind
    }

    /// Who holds it and who waits, as [`inspect`](crate::Mutex::inspect) returns it.
    ///
    /// ```
    /// # fn demo(client: &leasehold::LockClient) -> leasehold::Result<()> {
    /// for lock in client.locks("*")? {
    ///     println!("{}", lock?.inspection());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn inspection(&self) -> &Inspection {
        &self.inspection
    }
}

/// The kind, the name, and what [`Inspection`] shows, in one line for each waiter.
impl fmt::Display for ListedLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.kind(), ShownName(&self.name), self.inspection)
    }
}
