package redial.interop;

import io.grpc.Context;
import io.grpc.Contexts;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor.MethodType;
import io.grpc.Server;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.ServerInterceptor;
import io.grpc.ServerInterceptors;
import io.grpc.ServerServiceDefinition;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import io.grpc.stub.ServerCalls;
import io.grpc.stub.StreamObserver;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.util.Map;

/** Serves redial.test.Echo with grpc-java, as echo.proto says. */
final class EchoServer {
  private static final String SERVICE = "redial.test.Echo";
  private static final Context.Key<Attempt> ATTEMPT = Context.key("attempt");

  private EchoServer() {}

  /** Runs until the input ends. */
  static void serve(InputStream input) throws IOException {
    Peer.printLine(Map.of("port", start().getPort()));
    input.transferTo(OutputStream.nullOutputStream());
    // Do not wait for delayed handlers.
    Runtime.getRuntime().halt(0);
  }

  /** Serves on a free port of 127.0.0.1. */
  static Server start() throws IOException {
    ServerServiceDefinition echo =
        ServerServiceDefinition.builder(SERVICE)
            .addMethod(
                Bytes.method(MethodType.UNARY, SERVICE + "/Unary"),
                ServerCalls.asyncUnaryCall(EchoServer::unary))
            .addMethod(
                Bytes.method(MethodType.CLIENT_STREAMING, SERVICE + "/ClientStream"),
                ServerCalls.asyncClientStreamingCall(Joining::new))
            .addMethod(
                Bytes.method(MethodType.SERVER_STREAMING, SERVICE + "/ServerStream"),
                ServerCalls.asyncServerStreamingCall(EchoServer::serverStream))
            .addMethod(
                Bytes.method(MethodType.BIDI_STREAMING, SERVICE + "/Bidi"),
                ServerCalls.asyncBidiStreamingCall(Answering::new))
            .build();
    return NettyServerBuilder.forAddress(new InetSocketAddress("127.0.0.1", 0))
        .addService(ServerInterceptors.intercept(echo, new Attempt.Finder()))
        .build()
        .start();
  }

  private static void unary(byte[] message, StreamObserver<byte[]> out) {
    Attempt attempt = ATTEMPT.get();
    Request request = Request.parse(message);
    pause(request);
    StatusRuntimeException failure = attempt.failure(request);
    if (failure != null) {
      out.onError(failure);
      return;
    }
    out.onNext(Request.response(request.payload(), attempt.previous(), 1));
    out.onCompleted();
  }

  private static void serverStream(byte[] message, StreamObserver<byte[]> out) {
    Answering answering = new Answering(out);
    answering.onNext(message);
    answering.onCompleted();
  }

  private static void pause(Request request) {
    try {
      Thread.sleep(request.delayMs());
    } catch (InterruptedException interruption) {
      throw new IllegalStateException(interruption);
    }
  }

  /** What a handler needs to know of the attempt that it serves, beside the messages. */
  private record Attempt(ServerCall<?, ?> call, int previous) {
    private static final Metadata.Key<String> PREVIOUS =
        Metadata.Key.of("grpc-previous-rpc-attempts", Metadata.ASCII_STRING_MARSHALLER);
    private static final Metadata.Key<String> PUSHBACK =
        Metadata.Key.of("grpc-retry-pushback-ms", Metadata.ASCII_STRING_MARSHALLER);

    /** How this attempt fails, or null. */
    StatusRuntimeException failure(Request request) {
      if (Integer.compareUnsigned(previous, request.failures()) >= 0) {
        return null;
      }
      boolean known = request.code() >= 1 && request.code() <= 16;
      Status status = known ? Status.fromCodeValue(request.code()) : Status.UNAVAILABLE;
      Metadata trailers = new Metadata();
      if (request.pushbackMs() != null) {
        trailers.put(PUSHBACK, request.pushbackMs().toString());
      }
      return status
          .withDescription("asked to fail, after " + previous + " attempts")
          .asRuntimeException(trailers);
    }

    /** Puts the attempt where handlers find it. */
    static final class Finder implements ServerInterceptor {
      @Override
      public <A, B> ServerCall.Listener<A> interceptCall(
          ServerCall<A, B> call, Metadata headers, ServerCallHandler<A, B> next) {
        String previous = headers.get(PREVIOUS);
        Attempt attempt = new Attempt(call, previous == null ? 0 : Integer.parseInt(previous));
        return Contexts.interceptCall(Context.current().withValue(ATTEMPT, attempt), call, headers, next);
      }
    }
  }

  /** {@code ClientStream} at work. */
  private static final class Joining implements StreamObserver<byte[]> {
    private final Attempt attempt = ATTEMPT.get();
    private final ByteArrayOutputStream payload = new ByteArrayOutputStream();
    private final StreamObserver<byte[]> out;
    private int received;
    private boolean failed;

    Joining(StreamObserver<byte[]> out) {
      this.out = out;
    }

    @Override
    public void onNext(byte[] message) {
      if (failed) {
        return;
      }
      Request request = Request.parse(message);
      received++;
      if (received == 1) {
        pause(request);
        StatusRuntimeException failure = attempt.failure(request);
        if (failure != null) {
          failed = true;
          out.onError(failure);
          return;
        }
      }
      payload.writeBytes(request.payload());
    }

    @Override
    public void onError(Throwable cancelled) {
      failed = true;
    }

    @Override
    public void onCompleted() {
      if (!failed) {
        out.onNext(Request.response(payload.toByteArray(), attempt.previous(), received));
        out.onCompleted();
      }
    }
  }

  /** A method that answers with a stream, at work; one message is a stream of one. */
  private static final class Answering implements StreamObserver<byte[]> {
    private final Attempt attempt = ATTEMPT.get();
    private final StreamObserver<byte[]> out;
    private Request first;
    private StatusRuntimeException failure;
    private int received;
    private boolean ended;

    Answering(StreamObserver<byte[]> out) {
      this.out = out;
    }

    @Override
    public void onNext(byte[] message) {
      if (ended) {
        return;
      }
      Request request = Request.parse(message);
      received++;
      if (received == 1) {
        first = request;
        failure = attempt.failure(request);
        if (failure != null && request.failing() != Request.FAILING_AT_END) {
          ended = true;
          if (request.failing() == Request.FAILING_FIRST_ITEM) {
            attempt.call().sendHeaders(new Metadata());
          }
          pause(request);
          out.onError(failure);
          return;
        }
      }
      for (int i = 0; i != request.responses() && !attempt.call().isCancelled(); i++) {
        pause(first);
        out.onNext(Request.response(request.payload(), attempt.previous(), received));
      }
    }

    @Override
    public void onError(Throwable cancelled) {
      ended = true;
    }

    @Override
    public void onCompleted() {
      if (ended || attempt.call().isCancelled()) {
        return;
      }
      if (failure != null) {
        out.onError(failure);
      } else {
        out.onCompleted();
      }
    }
  }
}
