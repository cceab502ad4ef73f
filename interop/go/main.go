// Peer runs grpc-go in the interop tests: `version`, `client` or `server PROTO`
// (interop/README.md).
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"

	"google.golang.org/grpc"
)

func main() {
	var err error
	switch arguments := os.Args[1:]; {
	case len(arguments) == 1 && arguments[0] == "version":
		printLine(map[string]string{
			"library": "google.golang.org/grpc",
			"version": grpc.Version,
			"runtime": strings.Replace(runtime.Version(), "go", "Go ", 1),
		})
	case len(arguments) == 1 && arguments[0] == "client":
		err = playAll(os.Stdin)
	case len(arguments) == 2 && arguments[0] == "server":
		err = serve(os.Stdin)
	default:
		err = fmt.Errorf("expected `version`, `client` or `server PROTO`")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

var printing sync.Mutex

// printLine prints one line of the protocol; standard output has no buffer to flush.
func printLine(line any) {
	printing.Lock()
	defer printing.Unlock()
	if err := json.NewEncoder(os.Stdout).Encode(line); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
