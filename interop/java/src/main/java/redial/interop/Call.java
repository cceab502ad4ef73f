package redial.interop;

import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor.MethodType;
import io.grpc.Status;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/** One call of a scenario, from the moment at which it is made to its final status. */
final class Call extends ClientCall.Listener<byte[]> {
  private static final Metadata.Key<String> ATTEMPT = key("x-redial-attempt");
  private static final Metadata.Key<String> PREVIOUS = key("grpc-previous-rpc-attempts");

  record Spec(
      double at,
      String method,
      String kind,
      Map<String, String> metadata,
      Double deadline,
      Double cancel,
      List<Message> messages) {}

  record Message(double at, int bytes) {}

  record Result(
      double began, Double ended, String outcome, String text, String answered_by, String previous) {}

  private final ClientCall<byte[], byte[]> call;
  private final Clock clock;
  private final double began;
  private final CompletableFuture<Result> result;
  private Metadata initial = new Metadata();

  private Call(ClientCall<byte[], byte[]> call, Clock clock, CompletableFuture<Result> result) {
    this.call = call;
    this.clock = clock;
    this.began = clock.now();
    this.result = result;
  }

  static CompletableFuture<Result> make(Channel channel, Clock clock, Spec spec, double giveUp) {
    CompletableFuture<Result> result = new CompletableFuture<>();
    clock.at(
        spec.at(),
        () -> {
          boolean unary = spec.kind().equals("unary");
          MethodType type = unary ? MethodType.UNARY : MethodType.CLIENT_STREAMING;
          CallOptions options = CallOptions.DEFAULT;
          if (spec.deadline() != null) {
            options = options.withDeadlineAfter(Clock.nanos(spec.deadline()), TimeUnit.NANOSECONDS);
          }
          new Call(channel.newCall(Bytes.method(type, spec.method().substring(1)), options), clock, result)
              .start(spec, giveUp);
        });
    return result;
  }

  private void start(Spec spec, double giveUp) {
    Metadata metadata = new Metadata();
    spec.metadata().forEach((name, value) -> metadata.put(key(name), value));
    call.start(this, metadata);
    call.request(2);
    if (spec.cancel() != null) {
      clock.at(began + spec.cancel(), () -> call.cancel("cancelled by the application", null));
    }
    clock.at(giveUp, this::giveUp);
    write(spec.messages(), 0);
  }

  /** Writes what is due, and the rest when it is due. */
  private void write(List<Message> messages, int from) {
    try {
      for (int i = from; i < messages.size(); i++) {
        double due = began + messages.get(i).at();
        if (messages.get(i).at() > 0 && due > clock.now()) {
          int next = i;
          clock.at(due, () -> write(messages, next));
          return;
        }
        call.sendMessage(new byte[messages.get(i).bytes()]);
      }
      call.halfClose();
    } catch (IllegalStateException cancelled) {
      // The application has cancelled the call; its status shows that.
      return;
    }
  }

  private void giveUp() {
    if (result.complete(new Result(began, null, null, "", null, null))) {
      call.cancel("not ended in time", null);
    }
  }

  @Override
  public void onHeaders(Metadata headers) {
    initial = headers;
  }

  @Override
  public void onClose(Status status, Metadata trailers) {
    double ended = clock.now();
    String text = status.getDescription() == null ? "" : status.getDescription();
    String answeredBy = first(ATTEMPT, trailers, initial);
    String previous = first(PREVIOUS, initial, trailers);
    result.complete(new Result(began, ended, status.getCode().name(), text, answeredBy, previous));
  }

  private static String first(Metadata.Key<String> key, Metadata... sources) {
    for (Metadata source : sources) {
      if (source.containsKey(key)) {
        return source.getAll(key).iterator().next();
      }
    }
    return null;
  }

  private static Metadata.Key<String> key(String name) {
    return Metadata.Key.of(name, Metadata.ASCII_STRING_MARSHALLER);
  }
}
