// Loadgen sends one bounded load to servers on this machine and prints what came back as JSON.
//
// The plan comes as JSON on standard input (see plan.go). Every operation slot owns its connections, so a
// request costs a write, a read and a parse: the generator takes little of the machine that it measures.
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
