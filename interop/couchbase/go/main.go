// Peer runs gocb in the interop tests: `version` or `client HOST:PORT` (interop/README.md).
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/couchbase/gocb/v2"
)

func main() {
	var err error
	switch arguments := os.Args[1:]; {
	case len(arguments) == 1 && arguments[0] == "version":
		printLine(map[string]string{
			"library": "github.com/couchbase/gocb/v2",
			"version": gocb.Version(),
			"runtime": strings.Replace(runtime.Version(), "go", "Go ", 1),
		})
	case len(arguments) == 2 && arguments[0] == "client":
		err = serve(arguments[1])
	default:
		err = fmt.Errorf("expected `version` or `client HOST:PORT`")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func printLine(line any) {
	if err := json.NewEncoder(os.Stdout).Encode(line); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// asked is a question to the strategy: the reason, and its answer in ms; null is no retry.
type asked struct {
	Reason  string   `json:"reason"`
	DelayMs *float64 `json:"delay_ms"`
}

// noting is the library's best effort, which notes what it was asked.
type noting struct {
	bestEffort gocb.RetryStrategy
	mutex      sync.Mutex
	asked      []asked
}

func (strategy *noting) RetryAfter(request gocb.RetryRequest, reason gocb.RetryReason) gocb.RetryAction {
	action := strategy.bestEffort.RetryAfter(request, reason)
	note := asked{Reason: reason.Description()}
	if delay := action.Duration(); delay > 0 {
		ms := float64(delay) / float64(time.Millisecond)
		note.DelayMs = &ms
	}
	strategy.mutex.Lock()
	defer strategy.mutex.Unlock()
	strategy.asked = append(strategy.asked, note)
	return action
}

func (strategy *noting) take() []asked {
	strategy.mutex.Lock()
	defer strategy.mutex.Unlock()
	taken := strategy.asked
	strategy.asked = nil
	if taken == nil {
		taken = []asked{}
	}
	return taken
}

type request struct {
	Operation string  `json:"operation"`
	Key       string  `json:"key"`
	TimeoutMs float64 `json:"timeout_ms"`
}

type result struct {
	Outcome   string  `json:"outcome"`
	ElapsedMs float64 `json:"elapsed_ms"`
	Asked     []asked `json:"asked"`
}

func serve(address string) error {
	strategy := &noting{bestEffort: gocb.NewBestEffortRetryStrategy(nil)}
	// Injected failures hit polls of the configuration too, so it is polled rarely.
	url := "couchbase://" + address + "?kv_pool_size=1&config_poll_interval=3600000"
	cluster, err := gocb.Connect(url, gocb.ClusterOptions{
		Authenticator: gocb.PasswordAuthenticator{Username: "secure", Password: "secret"},
		SecurityConfig: gocb.SecurityConfig{
			AllowedSaslMechanisms: []gocb.SaslMechanism{gocb.PlainSaslMechanism},
		},
		RetryStrategy: strategy,
	})
	if err != nil {
		return err
	}
	bucket := cluster.Bucket("secure")
	ready := &gocb.WaitUntilReadyOptions{ServiceTypes: []gocb.ServiceType{gocb.ServiceTypeKeyValue}}
	if err := bucket.WaitUntilReady(60*time.Second, ready); err != nil {
		return err
	}
	strategy.take()
	printLine(map[string]bool{"ready": true})
	documents := bucket.DefaultCollection()
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var request request
		if err := json.Unmarshal(lines.Bytes(), &request); err != nil {
			return err
		}
		started := time.Now()
		err := execute(documents, request)
		elapsed := float64(time.Since(started)) / float64(time.Millisecond)
		printLine(result{Outcome: outcome(err), ElapsedMs: elapsed, Asked: strategy.take()})
	}
	return lines.Err()
}

func execute(documents *gocb.Collection, request request) error {
	timeout := time.Duration(request.TimeoutMs * float64(time.Millisecond))
	var err error
	switch request.Operation {
	case "get":
		_, err = documents.Get(request.Key, &gocb.GetOptions{Timeout: timeout})
	case "upsert":
		_, err = documents.Upsert(request.Key, 1, &gocb.UpsertOptions{Timeout: timeout})
	default:
		err = fmt.Errorf("there is no operation %q", request.Operation)
	}
	return err
}

// outcome names an error as interop/README.md does.
func outcome(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, gocb.ErrAmbiguousTimeout):
		return "ambiguous timeout"
	case errors.Is(err, gocb.ErrUnambiguousTimeout):
		return "unambiguous timeout"
	case errors.Is(err, io.EOF):
		return "connection lost"
	default:
		return err.Error()
	}
}
