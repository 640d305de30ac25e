package main

import (
	"fmt"
	"time"
)

// Delivered is what the readers got.
type Delivered struct {
	Readers int                `json:"readers"`
	Events  int                `json:"events"`
	Seconds float64            `json:"seconds"`    // from the first operation to the last event
	Rate    float64            `json:"rate"`       // events a second
	Latency map[string]float64 `json:"latency_ms"` // from the publisher's answer to the event; 0 when it was not later
	Whole   map[string]float64 `json:"whole_ms"`   // from the publisher's request to the event
}

// newDelivered fails when a reader broke off, or one that must see all did not see each message once and in order.
func newDelivered(a *audience, slots []*slot, start time.Time) (*Delivered, error) {
	published := map[int64]receipt{}
	for _, s := range slots {
		for _, r := range s.receipts {
			published[r.sequence] = r
		}
	}
	found := &Delivered{Readers: len(a.readers)}
	last := start
	var latencies, whole []time.Duration
	for _, r := range a.readers {
		if r.failed != nil {
			return nil, fmt.Errorf("a reader broke off: %w", r.failed)
		}
		found.Events += int(r.seen.Load())
		if !r.of.Expect {
			continue
		}
		if len(r.list) != len(published) {
			return nil, fmt.Errorf("a reader saw %d of %d messages", len(r.list), len(published))
		}
		before := int64(0)
		for _, seen := range r.list {
			of, known := published[seen.sequence]
			if !known || seen.sequence <= before {
				return nil, fmt.Errorf("a reader saw %d after %d: unknown, twice or out of order", seen.sequence, before)
			}
			before = seen.sequence
			latencies = append(latencies, max(seen.at.Sub(of.answered), 0))
			whole = append(whole, seen.at.Sub(of.sent))
			if seen.at.After(last) {
				last = seen.at
			}
		}
	}
	found.Seconds = last.Sub(start).Seconds()
	if found.Seconds > 0 {
		found.Rate = float64(len(latencies)) / found.Seconds
	}
	found.Latency, found.Whole = percentiles(latencies), percentiles(whole)
	return found, nil
}
