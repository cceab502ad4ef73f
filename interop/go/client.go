package main

// Runs scenarios with a channel of grpc-go.
//
// It makes no decisions: requests are passed to the library, and its results are printed.

import (
	"context"
	"encoding/json"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

const connectMax = 5 * time.Second

// milliseconds is a time of the protocol.
type milliseconds float64

func (m milliseconds) duration() time.Duration {
	return time.Duration(float64(m) * float64(time.Millisecond))
}

type scenario struct {
	ID      json.RawMessage `json:"id"`
	Target  string          `json:"target"`
	Config  string          `json:"config"`
	Options options         `json:"options"`
	GiveUp  milliseconds    `json:"give_up"`
	Calls   []call          `json:"calls"`
}

// options are those that grpc-go has: there is no retry buffer limit per channel.
type options struct {
	AttemptsCap       *int  `json:"attempts_cap"`
	Retries           *bool `json:"retries"`
	PerRPCBufferLimit *int  `json:"per_rpc_buffer_limit_in_bytes"`
}

type call struct {
	At       milliseconds      `json:"at"`
	Method   string            `json:"method"`
	Kind     string            `json:"kind"`
	Metadata map[string]string `json:"metadata"`
	Deadline *milliseconds     `json:"deadline"`
	Cancel   *milliseconds     `json:"cancel"`
	Messages []struct {
		At    milliseconds `json:"at"`
		Bytes int          `json:"bytes"`
	} `json:"messages"`
}

type result struct {
	ID      json.RawMessage `json:"id"`
	Refused string          `json:"refused,omitempty"`
	Calls   []callResult    `json:"calls,omitempty"`
}

type callResult struct {
	Began      float64  `json:"began"`
	Ended      *float64 `json:"ended"`
	Outcome    *string  `json:"outcome"`
	Text       string   `json:"text"`
	AnsweredBy *string  `json:"answered_by"`
	Previous   *string  `json:"previous"`
}

func playAll(input io.Reader) error {
	var plays sync.WaitGroup
	defer plays.Wait()
	for lines := json.NewDecoder(input); ; {
		var scenario scenario
		if err := lines.Decode(&scenario); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		plays.Go(func() { printLine(scenario.play()) })
	}
}

func (s *scenario) play() result {
	channel, err := grpc.NewClient("passthrough:///"+s.Target, s.Options.dial(s.Config)...)
	if err != nil {
		return result{ID: s.ID, Refused: err.Error()}
	}
	defer channel.Close()
	connect(channel)
	clock := clock{time.Now()}
	results := make([]callResult, len(s.Calls))
	var calls sync.WaitGroup
	for i := range s.Calls {
		calls.Go(func() { results[i] = s.Calls[i].make(channel, clock, s.GiveUp) })
	}
	calls.Wait()
	return result{ID: s.ID, Calls: results}
}

func (o options) dial(config string) []grpc.DialOption {
	calls := []grpc.CallOption{grpc.ForceCodec(raw{})}
	if o.PerRPCBufferLimit != nil {
		calls = append(calls, grpc.MaxRetryRPCBufferSize(*o.PerRPCBufferLimit))
	}
	dial := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(config),
		grpc.WithDisableServiceConfig(),
		grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(calls...),
	}
	if o.AttemptsCap != nil {
		dial = append(dial, grpc.WithMaxCallAttempts(*o.AttemptsCap))
	}
	if o.Retries != nil && !*o.Retries {
		dial = append(dial, grpc.WithDisableRetry())
	}
	return dial
}

func connect(channel *grpc.ClientConn) {
	patience, cancel := context.WithTimeout(context.Background(), connectMax)
	defer cancel()
	channel.Connect()
	for state := channel.GetState(); state != connectivity.Ready; state = channel.GetState() {
		if !channel.WaitForStateChange(patience, state) {
			return
		}
	}
}

// clock counts from the scenario's start.
type clock struct{ start time.Time }

func (c clock) now() float64 { return float64(time.Since(c.start)) / float64(time.Millisecond) }

func (c clock) wait(moment milliseconds) { time.Sleep(time.Until(c.start.Add(moment.duration()))) }

func (c *call) make(channel *grpc.ClientConn, clock clock, giveUp milliseconds) callResult {
	clock.wait(c.At)
	began := clock.now()
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(context.Background(), metadata.New(c.Metadata)))
	defer cancel()
	if c.Deadline != nil {
		var expire context.CancelFunc
		ctx, expire = context.WithTimeout(ctx, c.Deadline.duration())
		defer expire()
	}
	if c.Cancel != nil {
		defer time.AfterFunc(c.Cancel.duration(), cancel).Stop()
	}
	ended := make(chan callResult, 1)
	go func() {
		var initial, trailing metadata.MD
		err := c.run(ctx, channel, grpc.Header(&initial), grpc.Trailer(&trailing))
		at := clock.now()
		final := status.Convert(err)
		outcome := codeNames[final.Code()]
		ended <- callResult{
			Began:      began,
			Ended:      &at,
			Outcome:    &outcome,
			Text:       final.Message(),
			AnsweredBy: first("x-redial-attempt", trailing, initial),
			Previous:   first("grpc-previous-rpc-attempts", initial, trailing),
		}
	}()
	select {
	case result := <-ended:
		return result
	case <-time.After(time.Until(clock.start.Add(giveUp.duration()))):
		return callResult{Began: began}
	}
}

func (c *call) run(ctx context.Context, channel *grpc.ClientConn, how ...grpc.CallOption) error {
	var answer []byte
	if c.Kind == "unary" {
		message := make([]byte, c.Messages[0].Bytes)
		return channel.Invoke(ctx, c.Method, &message, &answer, how...)
	}
	began := clock{time.Now()}
	stream, err := channel.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, c.Method, how...)
	if err != nil {
		return err
	}
	go func() {
		for _, planned := range c.Messages {
			began.wait(planned.At)
			message := make([]byte, planned.Bytes)
			if stream.SendMsg(&message) != nil {
				// The call has ended; RecvMsg returns its status.
				return
			}
		}
		_ = stream.CloseSend()
	}()
	return stream.RecvMsg(&answer)
}

func first(name string, sources ...metadata.MD) *string {
	for _, source := range sources {
		if values := source.Get(name); len(values) > 0 {
			return &values[0]
		}
	}
	return nil
}

// codeNames are gRPC's names; package codes uses its own.
var codeNames = [...]string{
	"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
	"PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE",
	"UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
}
