package redial.interop;

import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/** Milliseconds since a scenario's start, and what happens at them. */
final class Clock {
  private static final int THREADS = 4;
  private static final ScheduledThreadPoolExecutor TIMER =
      new ScheduledThreadPoolExecutor(
          THREADS,
          run -> {
            Thread thread = new Thread(run, "timer");
            thread.setDaemon(true);
            return thread;
          });

  private final long start = System.nanoTime();

  double now() {
    return (System.nanoTime() - start) / 1e6;
  }

  /** Runs what is to happen at a moment; at once if that has passed. */
  ScheduledFuture<?> at(double moment, Runnable what) {
    return TIMER.schedule(what, nanos(moment - now()), TimeUnit.NANOSECONDS);
  }

  static long nanos(double milliseconds) {
    return (long) (milliseconds * 1e6);
  }
}
