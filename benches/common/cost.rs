//! What operations cost: commands on the server, processor time on both sides.

use leasehold_support::{CommandStats, Server};
use rustix::time::{ClockId, clock_gettime};

use super::raw::Shape;

/// What a number of operations cost, each.
#[derive(Debug)]
pub(crate) struct Cost {
    calls: CommandStats,
    count: f64,
    /// Processor time of the server, in µs.
    pub(crate) server: f64,
    /// Processor time of this process, in µs.
    pub(crate) client: f64,
}

impl Cost {
    /// Counts what `count` operations cost, all done by `run`, warm and with nobody else there.
    pub(crate) fn of(server: &Server, count: usize, run: impl FnOnce()) -> Cost {
        let before = server.commands();
        let (server_before, client_before) = (server_time(server), process_time());
        run();
        let (client_after, server_after) = (process_time(), server_time(server));
        let mut calls = server.commands().since(&before);
        // The looks themselves.
        calls.calls.remove("info");
        let count = count as f64;
        Cost {
            calls,
            count,
            server: (server_after - server_before) / count * 1e6,
            client: (client_after - client_before) / count * 1e6,
        }
    }

    /// Commands sent for each operation, given what the raw form of the same costs.
    ///
    /// The server counts what scripts call beside what clients send. The scripts are the same, so
    /// whatever is counted more or less than for raw was sent.
    pub(crate) fn commands(&self, raw: &Cost, shape: &Shape) -> f64 {
        let more = self.calls.calls.values().sum::<u64>() as f64;
        let less = raw.calls.calls.values().sum::<u64>() as f64;
        // Whole numbers before the division, so that an even count comes out even.
        (shape.commands() as f64 * self.count + more - less) / self.count
    }

    /// All calls counted for each operation, scripts' own included.
    pub(crate) fn calls(&self) -> f64 {
        self.calls.calls.values().sum::<u64>() as f64 / self.count
    }
}

/// Does an operation `count` times.
pub(crate) fn repeat(count: usize, mut operation: impl FnMut()) -> impl FnOnce() {
    move || (0..count).for_each(|_| operation())
}

/// The processor time that this process has used, in seconds.
pub(crate) fn process_time() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The processor time that the server has used, in seconds.
pub(crate) fn server_time(server: &Server) -> f64 {
    let info: String = redis::cmd("INFO")
        .arg("cpu")
        .query(&mut server.connection())
        .expect("the server answers INFO");
    ["used_cpu_user:", "used_cpu_sys:"]
        .iter()
        .filter_map(|name| info.lines().find_map(|line| line.strip_prefix(name)))
        .filter_map(|value| value.trim().parse::<f64>().ok())
        .sum()
}
