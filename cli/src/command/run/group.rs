//! A control group for a job alone (cgroup v2): the kernel kills all its processes at once, wherever they are in the tree
//! of processes, and whatever number they have.
//!
//! The wrapper makes it below its own group before it forks the guardian. The main process of the job enters it before its
//! program begins, and no other process of this program does. Groups of nested runs are below it, and are killed along.
//!
//! The folder is locked, by flock(2), for as long as the wrapper or the guardian lives. So a run can tell the groups that
//! killed ones have left, and removes those that are empty.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::getxattr;
use rustix::process::getpid;

use super::clock::Moment;

/// How the names of such groups begin.
const PREFIX: &str = "leasehold-";
/// Another run may take a new group for one that was left, before it is locked.
const ATTEMPTS: usize = 3;

/// Where the kernel tells of groups, for this process.
#[derive(Debug)]
pub(crate) struct System {
    /// `/proc/self`.
    process: PathBuf,
    /// There if systemd runs the machine.
    systemd: PathBuf,
    own: i32,
}

impl System {
    pub(crate) fn this() -> System {
        System {
            process: PathBuf::from("/proc/self"),
            systemd: PathBuf::from("/run/systemd/system"),
            own: getpid().as_raw_pid(),
        }
    }

    /// The folder of the group of this process.
    fn folder(&self) -> Option<PathBuf> {
        let read = |name| std::fs::read(self.process.join(name)).unwrap_or_default();
        let candidates = folders(&read("cgroup"), &read("mountinfo"));
        // A mount may hide another, or show another namespace.
        candidates.into_iter().find(|folder| members(folder).contains(&self.own))
    }

    /// Whether groups may be made in this folder. Those of systemd are its own, unless it has delegated them.
    fn may_divide(&self, folder: &Path) -> bool {
        if !self.systemd.exists() {
            return true;
        }
        // Ours are below one that was delegated.
        let is_ours = |folder: &Path| {
            folder.file_name().is_some_and(|name| name.as_bytes().starts_with(PREFIX.as_bytes()))
        };
        let delegated = folder.ancestors().find(|folder| !is_ours(folder)).unwrap_or(folder);
        ["user.delegate", "trusted.delegate"].iter().any(|name| {
            let mut value = [0; 1];
            getxattr(delegated, *name, &mut value).is_ok_and(|length| &value[..length] == b"1")
        })
    }

    /// Makes a group for a job, and removes empty ones that others have left. Returns why not, if not.
    pub(crate) fn create(&self) -> Result<Group, String> {
        let parent = self.folder().ok_or("no group of version 2 is mounted")?;
        if !self.may_divide(&parent) {
            return Err(format!("systemd has not delegated {}", parent.display()));
        }
        // To move a process takes the right to write to the group that both are below.
        let rule = parent.join("cgroup.procs");
        let said = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
        File::options().append(true).open(&rule).map_err(|error| said(&rule, error))?;
        sweep(&parent);
        let mut why = String::new();
        for _ in 0..ATTEMPTS {
            let name = format!("{PREFIX}{}-{}", self.own, Moment::now().as_nanos());
            let folder = parent.join(name);
            std::fs::create_dir(&folder).map_err(|error| said(&folder, error))?;
            match Group::claim(&folder) {
                Ok(group) => return Ok(group),
                Err(error) => {
                    remove(&folder);
                    why = said(&folder, error);
                }
            }
        }
        Err(why)
    }
}

/// Where the group of `/proc/self/cgroup` may be, by `/proc/self/mountinfo`. The last mount hides others.
fn folders(cgroup: &[u8], mountinfo: &[u8]) -> Vec<PathBuf> {
    let own = cgroup.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"0::"));
    let own = own.map(|own| Path::new(OsStr::from_bytes(own)));
    // One that begins with `..` is outside the namespace.
    let Some(own) = own.filter(|own| !own.starts_with("/..")) else { return Vec::new() };
    let mounts = mountinfo.split(|byte| *byte == b'\n').rev().filter_map(|line| {
        // `41 31 0:38 ROOT FOLDER rw,relatime [OPTIONAL…] - cgroup2 …`
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let end = fields.iter().position(|field| *field == b"-")?;
        let is_ours = *fields.get(end + 1)? == b"cgroup2";
        is_ours.then_some((unescaped(fields.get(3)?), unescaped(fields.get(4)?)))
    });
    let places =
        mounts.filter_map(|(root, folder)| Some(folder.join(own.strip_prefix(root).ok()?)));
    places.collect()
}

/// A space, a tabulator, a line feed and a backslash are octal there.
fn unescaped(field: &[u8]) -> PathBuf {
    let (mut bytes, mut rest) = (Vec::new(), field);
    while let Some((first, others)) = rest.split_first() {
        let number = others.get(..3).filter(|_| *first == b'\\');
        let number = number.and_then(|number| std::str::from_utf8(number).ok());
        match number.and_then(|number| u8::from_str_radix(number, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &others[3..];
            }
            None => {
                bytes.push(*first);
                rest = others;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

/// The processes of a group, without those of the groups below it. One of another PID namespace has no number here.
fn members(folder: &Path) -> HashSet<i32> {
    let text = std::fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// The groups directly below this one.
fn groups(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.path()).collect()
}

/// Removes empty groups that killed runs have left.
fn sweep(parent: &Path) {
    for folder in groups(parent) {
        let name = folder.file_name().unwrap_or_default();
        if name.as_bytes().starts_with(PREFIX.as_bytes()) && lock(&folder).is_ok() {
            remove(&folder);
        }
    }
}

/// A lock of a folder, which ends with the processes that have it.
fn lock(folder: &Path) -> std::io::Result<File> {
    let file = File::open(folder)?;
    file.try_lock()?;
    Ok(file)
}

/// Removes a group and those below it, if no process is in any.
fn remove(folder: &Path) {
    groups(folder).iter().for_each(|group| remove(group));
    let _ = std::fs::remove_dir(folder);
}

#[derive(Debug)]
pub(crate) struct Group {
    folder: PathBuf,
    kill: File,
    _lock: File,
}

impl Group {
    fn claim(folder: &Path) -> std::io::Result<Group> {
        let lock = lock(folder)?;
        // There since Linux 5.14, in a group that is still there.
        let kill = File::options().write(true).open(folder.join("cgroup.kill"))?;
        let kind = std::fs::read_to_string(folder.join("cgroup.type"))?;
        if kind.trim_end() != "domain" {
            let text = format!("it is of type {:?}, for threads", kind.trim_end());
            return Err(std::io::Error::other(text));
        }
        Ok(Group { folder: folder.to_owned(), kill, _lock: lock })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Moves this process into it.
    pub(crate) fn enter(&self) -> std::io::Result<()> {
        std::fs::write(self.folder.join("cgroup.procs"), "0")
    }

    /// Kills all processes in it and below it.
    pub(crate) fn kill(&self) {
        let _ = (&self.kill).write_all(b"1");
    }

    /// Whether there is a process in it or below it.
    pub(crate) fn is_populated(&self) -> bool {
        let text = std::fs::read_to_string(self.folder.join("cgroup.events")).unwrap_or_default();
        text.lines().any(|line| line == "populated 1")
    }

    /// The processes in it and below it that have a number here.
    pub(crate) fn processes(&self) -> HashSet<i32> {
        let (mut found, mut next) = (HashSet::new(), vec![self.folder.clone()]);
        while let Some(folder) = next.pop() {
            found.extend(members(&folder));
            next.extend(groups(&folder));
        }
        found.remove(&0);
        found
    }

    /// Removes it, if it is empty.
    pub(crate) fn remove(&self) {
        remove(&self.folder);
    }
}

/// Of a run that does not come to its job. A process that is replaced, or exits, drops nothing.
impl Drop for Group {
    fn drop(&mut self) {
        self.remove();
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    /// A folder that is deleted at its end, with the files of a process and a tree of groups.
    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str) -> Tree {
            let name = format!("lh-groups-{}-{name}", std::process::id());
            Tree(std::env::temp_dir().join(name))
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.join(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("it");
            std::fs::write(path, text).expect("a file");
        }

        /// One in the group `/a b`, mounted beside version 1, whose process is 7.
        fn system(&self) -> System {
            let escaped = self.0.display().to_string().replace(' ', "\\040");
            let mounts = format!(
                "22 27 0:21 / /proc rw - proc proc rw\n\
                 35 31 0:32 / {escaped}/memory rw,relatime - cgroup cgroup rw,memory\n\
                 41 31 0:38 / {escaped}/unified rw,relatime shared:9 - cgroup2 cgroup2 rw\n\
                 42 31 0:38 /other {escaped}/hidden rw - cgroup2 cgroup2 rw\n"
            );
            self.write("process/mountinfo", &mounts);
            self.write("process/cgroup", "4:memory:/x\n0::/a b\n");
            self.write("unified/a b/cgroup.procs", "3\n7\n");
            System { process: self.0.join("process"), systemd: self.0.join("systemd"), own: 7 }
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn group_is_found_by_its_path_and_the_mounts() {
        let find = |cgroup: &str, mounts: &str| folders(cgroup.as_bytes(), mounts.as_bytes());
        let plain = "29 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n";
        assert_eq!(find("0::/a/b\n", plain), [Path::new("/sys/fs/cgroup/a/b")]);
        assert_eq!(find("0::/\n", plain), [Path::new("/sys/fs/cgroup/")]);
        // Of a container, whose mount begins at its own group.
        let inner = "29 23 0:26 /docker/7f /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n";
        assert_eq!(find("0::/docker/7f/x\n", inner), [Path::new("/sys/fs/cgroup/x")]);
        assert_eq!(find("0::/docker/7fff\n", inner), Vec::<PathBuf>::new(), "another group");
        assert_eq!(find("0::/../other\n", plain), Vec::<PathBuf>::new(), "out of the namespace");
        let both = [plain, "50 23 0:26 / /mnt/c\\040g\\134 rw - cgroup2 none rw\n"].concat();
        let found = find("1:cpu:/x\n0::/a\n", &both);
        assert_eq!(found, [Path::new("/mnt/c g\\/a"), Path::new("/sys/fs/cgroup/a")]);
        let first = "30 23 0:26 / /sys/fs/cgroup rw - cgroup cgroup rw,cpu\n";
        assert_eq!(find("0::/a\n", first), Vec::<PathBuf>::new(), "version 1");
        assert_eq!(find("4:memory:/x\n", plain), Vec::<PathBuf>::new());
        assert_eq!(find("", ""), Vec::<PathBuf>::new());
        assert_eq!(find("0::/a\n", "29 23 0:26 / /c rw"), Vec::<PathBuf>::new(), "cut off");
    }

    #[test]
    fn folder_counts_if_this_process_is_in_it() {
        let tree = Tree::new("own");
        let mut system = tree.system();
        assert_eq!(system.folder(), Some(tree.0.join("unified/a b")));
        system.own = 8;
        assert_eq!(system.folder(), None);
        assert!(system.create().expect_err("no group").contains("version 2"));
    }

    #[test]
    fn group_of_systemd_is_left_alone_unless_it_is_delegated() {
        let tree = Tree::new("systemd");
        let system = tree.system();
        tree.write("systemd", "");
        assert!(system.create().expect_err("no group").contains("delegated"));
        assert_eq!(groups(&tree.0.join("unified/a b")), Vec::<PathBuf>::new());
    }

    /// What `mkdir` makes on a disk has no files: that is what Linux before 5.14 lacks, too.
    #[test]
    fn group_that_cannot_be_killed_is_removed_again() {
        let tree = Tree::new("old");
        let why = tree.system().create().expect_err("no group");
        assert!(why.contains(PREFIX), "{why}");
        assert_eq!(groups(&tree.0.join("unified/a b")), Vec::<PathBuf>::new());
    }

    #[test]
    fn left_groups_are_removed_and_those_in_use_stay() {
        let tree = Tree::new("sweep");
        let parent = tree.0.join("unified");
        for name in
            ["leasehold-1-1/leasehold-2-2/x", "leasehold-3-3", "leasehold-4-4", "user.slice"]
        {
            std::fs::create_dir_all(parent.join(name)).expect("a folder");
        }
        // A file keeps its folder, as a process does.
        tree.write("unified/leasehold-3-3/process", "");
        let in_use = lock(&parent.join("leasehold-4-4")).expect("a lock");
        sweep(&parent);
        let mut left = groups(&parent);
        left.sort();
        let expected = ["leasehold-3-3", "leasehold-4-4", "user.slice"];
        assert_eq!(left, expected.map(|name| parent.join(name)));
        drop(in_use);
        // Another test may be about to start a program: until it has begun, its process has the lock, too.
        let end = Instant::now() + Duration::from_secs(20);
        while parent.join("leasehold-4-4").exists() {
            assert!(Instant::now() < end, "it is not removed");
            sweep(&parent);
        }
    }

    #[test]
    fn group_has_the_processes_below_it_too() {
        let tree = Tree::new("members");
        tree.write("g/cgroup.procs", "12\n0\n13\n");
        tree.write("g/leasehold-5-5/cgroup.procs", "14\n");
        tree.write("g/cgroup.events", "populated 1\nfrozen 0\n");
        tree.write("g/cgroup.kill", "");
        tree.write("g/cgroup.type", "domain\n");
        let group = Group::claim(&tree.0.join("g")).expect("a group");
        assert_eq!(group.processes(), HashSet::from([12, 13, 14]));
        assert!(group.is_populated());
        group.kill();
        assert_eq!(std::fs::read_to_string(tree.0.join("g/cgroup.kill")).expect("it"), "1");
        assert!(Group::claim(&tree.0.join("g")).is_err(), "it is locked");
        drop(group);
        tree.write("g/cgroup.type", "domain invalid\n");
        assert!(Group::claim(&tree.0.join("g")).is_err());
        tree.write("g/cgroup.events", "populated 0\nfrozen 0\n");
        tree.write("g/cgroup.type", "domain\n");
        assert!(!Group::claim(&tree.0.join("g")).expect("a group").is_populated());
    }
}
