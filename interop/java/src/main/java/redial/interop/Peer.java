package redial.interop;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.Strictness;
import io.grpc.ManagedChannel;
import java.io.IOException;
import java.util.Arrays;
import java.util.Map;

/** grpc-java for side-by-side tests: {@code version}, {@code client} or {@code server PROTO}, as interop/README.md says. */
final class Peer {
  /** Strict, as the library itself reads service configs. */
  static final Gson JSON =
      new GsonBuilder().setStrictness(Strictness.STRICT).serializeNulls().disableHtmlEscaping().create();

  private Peer() {}

  public static void main(String[] arguments) throws IOException, InterruptedException {
    String mode = Arrays.stream(arguments).findFirst().orElse("");
    if (mode.equals("version") && arguments.length == 1) {
      printLine(Map.of(
          "library", "io.grpc:grpc-netty-shaded",
          "version", ManagedChannel.class.getPackage().getImplementationVersion(),
          "runtime", "Java " + System.getProperty("java.version")));
    } else if (mode.equals("client") && arguments.length == 1) {
      Client.playAll(System.in);
    } else if (mode.equals("server") && arguments.length == 2) {
      EchoServer.serve(System.in);
    } else {
      System.err.println("expected `version`, `client` or `server PROTO`");
      System.exit(1);
    }
  }

  /** Prints one line of the protocol. */
  static synchronized void printLine(Object line) {
    System.out.println(JSON.toJson(line));
    System.out.flush();
  }
}
