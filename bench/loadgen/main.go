// Loadgen sends one bounded load to servers on this machine and prints what came back as JSON.
//
// The plan comes as JSON on standard input (see plan.go). Every operation slot owns its connections, so a
// request costs a write, a read and a parse: the generator takes little of the machine that it measures.
//
// `loadgen sink 127.0.0.1:port` answers every request instead, until it is ended.
package main

import (
	"encoding/json"
	"fmt"
	"os"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "loadgen:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) == 3 && os.Args[1] == "sink" {
		return sink(os.Args[2])
	}
	plan, err := readPlan(os.Stdin)
	if err != nil {
		return err
	}
	result, err := execute(plan)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}
