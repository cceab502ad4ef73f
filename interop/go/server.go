package main

// Serves redial.test.Echo (echo.proto) with grpc-go.

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

var echo = grpc.ServiceDesc{
	ServiceName: "redial.test.Echo",
	HandlerType: (*any)(nil),
	Methods:     []grpc.MethodDesc{{MethodName: "Unary", Handler: unary}},
	Streams: []grpc.StreamDesc{
		{StreamName: "ClientStream", Handler: clientStream, ClientStreams: true},
		{StreamName: "ServerStream", Handler: stream, ServerStreams: true},
		{StreamName: "Bidi", Handler: stream, ClientStreams: true, ServerStreams: true},
	},
}

// serve runs until the input ends.
func serve(input io.Reader) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.ForceServerCodec(raw{}))
	server.RegisterService(&echo, nil)
	printLine(map[string]int{"port": listener.Addr().(*net.TCPAddr).Port})
	go func() {
		_, _ = io.Copy(io.Discard, input)
		server.Stop()
	}()
	return server.Serve(listener)
}

func unary(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	var message []byte
	if err := decode(&message); err != nil {
		return nil, err
	}
	request, err := parse(message)
	if err != nil {
		return nil, err
	}
	previous := previousAttempts(ctx)
	request.pause(ctx)
	if err := request.failure(previous, func(trailer metadata.MD) { _ = grpc.SetTrailer(ctx, trailer) }); err != nil {
		return nil, err
	}
	answer := response(request.payload, previous, 1)
	return &answer, nil
}

func clientStream(_ any, stream grpc.ServerStream) error {
	previous := previousAttempts(stream.Context())
	var payload []byte
	received := uint64(0)
	for {
		request, err := receive(stream)
		if err != nil {
			return err
		}
		if request == nil {
			break
		}
		received++
		if received == 1 {
			request.pause(stream.Context())
			if err := request.failure(previous, stream.SetTrailer); err != nil {
				return err
			}
		}
		payload = append(payload, request.payload...)
	}
	answer := response(payload, previous, received)
	return stream.SendMsg(&answer)
}

// stream serves both methods with a streamed response; a single message is a stream of one.
func stream(_ any, stream grpc.ServerStream) error {
	ctx := stream.Context()
	previous := previousAttempts(ctx)
	first, err := receive(stream)
	if err != nil || first == nil {
		return err
	}
	failure := first.failure(previous, stream.SetTrailer)
	if failure != nil && first.failing == failingFirstItem {
		if err := stream.SendHeader(nil); err != nil {
			return err
		}
	}
	if failure != nil && first.failing != failingAtEnd {
		first.pause(ctx)
		return failure
	}
	received := uint64(0)
	for request := first; request != nil; {
		received++
		for range request.responses {
			first.pause(ctx)
			answer := response(request.payload, previous, received)
			if err := stream.SendMsg(&answer); err != nil {
				return err
			}
		}
		if request, err = receive(stream); err != nil {
			return err
		}
	}
	return failure
}

// receive returns the next message, or nil at the end.
func receive(stream grpc.ServerStream) (*request, error) {
	var message []byte
	if err := stream.RecvMsg(&message); err == io.EOF {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	return parse(message)
}

func previousAttempts(ctx context.Context) uint64 {
	values := metadata.ValueFromIncomingContext(ctx, "grpc-previous-rpc-attempts")
	if len(values) == 0 {
		return 0
	}
	// An invalid number counts as 0.
	previous, _ := strconv.ParseUint(values[0], 10, 32)
	return previous
}

// pause waits for the requested delay, or until the call is cancelled.
func (r *request) pause(ctx context.Context) {
	if r.delay == 0 {
		return
	}
	select {
	case <-time.After(r.delay):
	case <-ctx.Done():
	}
}

// failure returns the failure of this attempt, if any; its pushback goes into the trailers.
func (r *request) failure(previous uint64, setTrailer func(metadata.MD)) error {
	if previous >= r.failures {
		return nil
	}
	code := codes.Unavailable
	if r.code >= 1 && r.code <= 16 {
		code = codes.Code(r.code)
	}
	if r.pushback != nil {
		setTrailer(metadata.Pairs("grpc-retry-pushback-ms", strconv.FormatInt(*r.pushback, 10)))
	}
	return status.Error(code, fmt.Sprintf("asked to fail, after %d attempts", previous))
}
