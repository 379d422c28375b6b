import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RScript;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

/** Redisson's plain lock, told what to do line by line. The commands are listed in src/peer.rs. */
public final class Worker {
  private final RedissonClient redisson;
  private final String enter;
  private final String leave;

  private Worker(String url, long leaseMillis, Path scripts) throws Exception {
    Config config = new Config();
    config.setLockWatchdogTimeout(leaseMillis);
    config.useSingleServer().setAddress(url);
    redisson = Redisson.create(config);
    enter = Files.readString(scripts.resolve("enter.lua"));
    leave = Files.readString(scripts.resolve("leave.lua"));
  }

  public static void main(String[] arguments) throws Exception {
    Worker worker =
        new Worker(arguments[0], Long.parseLong(arguments[1]), Path.of(arguments[2]));
    BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
    for (String line = input.readLine(); line != null; line = input.readLine()) {
      System.out.println(worker.run(line.split(" ")));
      System.out.flush();
    }
    worker.redisson.shutdown();
  }

  private String run(String[] words) throws Exception {
    RLock lock = redisson.getLock(words[1]);
    switch (words[0]) {
      case "lock":
        lock.lock();
        return "locked " + System.nanoTime();
      case "unlock":
        long before = System.nanoTime();
        lock.unlock();
        return "unlocked " + before;
      case "count":
        return "count "
            + redisson.<String, String>getMap(words[1], StringCodec.INSTANCE).readAllValues();
      case "contend":
        return "done " + contend(words);
      case "bench":
        return "done " + bench(words);
      default:
        throw new IllegalArgumentException(words[0]);
    }
  }

  private long contend(String[] words) throws Exception {
    int threads = Integer.parseInt(words[2]);
    ExecutorService pool = Executors.newFixedThreadPool(threads);
    List<Future<Long>> turns = new ArrayList<>();
    for (int thread = 0; thread < threads; thread++) {
      String me = ProcessHandle.current().pid() + ":" + thread;
      turns.add(pool.submit((Callable<Long>) () -> turns(words, me)));
    }
    long sum = 0;
    for (Future<Long> turn : turns) {
      sum += turn.get();
    }
    pool.shutdown();
    return sum;
  }

  /** Locks for a time. Returns how often, and the median and 99th percentile of the waits. */
  private String bench(String[] words) throws Exception {
    int threads = Integer.parseInt(words[2]);
    long nanos = Long.parseLong(words[3]) * 1_000_000;
    long holdMicros = Long.parseLong(words[4]);
    ExecutorService pool = Executors.newFixedThreadPool(threads);
    List<Future<List<Long>>> all = new ArrayList<>();
    for (int thread = 0; thread < threads; thread++) {
      RLock lock = redisson.getLock(words[1].endsWith(":") ? words[1] + thread : words[1]);
      all.add(
          pool.submit(
              () -> {
                List<Long> waits = new ArrayList<>();
                long end = System.nanoTime() + nanos;
                for (long call = System.nanoTime(); call < end; call = System.nanoTime()) {
                  lock.lock();
                  waits.add(System.nanoTime() - call);
                  if (holdMicros > 0) {
                    Thread.sleep(holdMicros / 1000, (int) (holdMicros % 1000) * 1000);
                  }
                  lock.unlock();
                }
                return waits;
              }));
    }
    List<Long> waits = new ArrayList<>();
    for (Future<List<Long>> one : all) {
      waits.addAll(one.get());
    }
    pool.shutdown();
    waits.sort(null);
    int size = waits.size();
    return size + " " + (size == 0 ? 0 : waits.get(size / 2) + " " + waits.get(size * 99 / 100));
  }

  /** Takes the lock until both sides together have had it as many times as was asked for. */
  private long turns(String[] words, String me) throws Exception {
    long target = Long.parseLong(words[3]);
    long holdMicros = Long.parseLong(words[4]);
    List<Object> keys = List.of("inside:" + words[1], "dead");
    RLock lock = redisson.getLock(words[1]);
    RScript script = redisson.getScript(StringCodec.INSTANCE);
    long had = 0;
    for (long turn = 0; turn < target; had++) {
      lock.lock();
      try {
        turn = script.eval(RScript.Mode.READ_WRITE, enter, RScript.ReturnType.LONG, keys, me);
        long end = System.nanoTime() + holdMicros * 1000;
        while (System.nanoTime() < end) {
          Thread.sleep(0, 100_000);
        }
        script.eval(RScript.Mode.READ_WRITE, leave, RScript.ReturnType.LONG, keys, me);
      } finally {
        lock.unlock();
      }
    }
    return had;
  }
}
