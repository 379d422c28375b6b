"""redis-py's lock, told what to do line by line. The commands are listed in src/peer.rs."""

import os
import sys
import threading
import time
from pathlib import Path

import redis


class Worker:
    def __init__(self, url, lease_millis, scripts):
        self.redis = redis.Redis.from_url(url)
        self.lease = int(lease_millis) / 1000
        self.enter = self.redis.register_script(Path(scripts, "enter.lua").read_text())
        self.leave = self.redis.register_script(Path(scripts, "leave.lua").read_text())
        self.held = {}

    def lock_of(self, name):
        return self.redis.lock(name, timeout=self.lease, sleep=0.001)

    def run(self, command, name, *words):
        if command == "lock":
            self.held[name] = self.lock_of(name)
            self.held[name].acquire()
            return f"locked {time.monotonic_ns()}"
        if command == "unlock":
            before = time.monotonic_ns()
            self.held.pop(name).release()
            return f"unlocked {before}"
        if command == "count":
            return f"count {self.redis.exists(name)}"
        if command == "contend":
            return f"done {self.contend(name, *map(int, words))}"
        if command == "bench":
            return f"done {self.bench(name, *map(int, words))}"
        raise ValueError(command)

    def bench(self, name, threads, millis, hold_micros):
        waits = []

        def lock_again(thread):
            lock = self.lock_of(f"{name}{thread}" if name.endswith(":") else name)
            end = time.monotonic_ns() + millis * 1_000_000
            while (call := time.monotonic_ns()) < end:
                lock.acquire()
                waits.append(time.monotonic_ns() - call)
                if hold_micros > 0:
                    time.sleep(hold_micros / 1e6)
                lock.release()

        pool = [threading.Thread(target=lock_again, args=(thread,)) for thread in range(threads)]
        for thread in pool:
            thread.start()
        for thread in pool:
            thread.join()
        waits.sort()
        return f"{len(waits)} {waits[len(waits) // 2]} {waits[len(waits) * 99 // 100]}"

    def contend(self, name, threads, target, hold_micros):
        had = [0] * threads

        def turns(thread):
            me, turn = f"{os.getpid()}:{thread}", 0
            keys = [f"inside:{name}", "dead"]
            while turn < target:
                with self.lock_of(name):
                    turn = self.enter(keys, [me])
                    time.sleep(hold_micros / 1e6)
                    self.leave(keys, [me])
                had[thread] += 1

        pool = [threading.Thread(target=turns, args=(thread,)) for thread in range(threads)]
        for thread in pool:
            thread.start()
        for thread in pool:
            thread.join()
        return sum(had)


worker = Worker(*sys.argv[1:])
for line in sys.stdin:
    print(worker.run(*line.split()), flush=True)
