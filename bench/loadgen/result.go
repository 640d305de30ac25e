package main

import (
	"math"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// Result is what a run showed. Latencies and the rate are of answered operations with a 2xx status.
type Result struct {
	Operations int                `json:"operations"` // begun
	Succeeded  int                `json:"succeeded"`  // answered 2xx
	Seconds    float64            `json:"seconds"`
	Rate       float64            `json:"rate"` // succeeded a second
	Statuses   map[string]int     `json:"statuses"`
	Errors     map[string]int     `json:"errors"`
	Latency    map[string]float64 `json:"latency_ms"`
	PerSecond  []int              `json:"per_second"`
	Sent       int64              `json:"bytes_sent"`
	Received   int64              `json:"bytes_received"`
	CPU        float64            `json:"cpu_seconds"` // of this generator
	Messages   int                `json:"messages"`    // taken by steps
	Captured   []string           `json:"captured,omitempty"`
	Delivered  *Delivered         `json:"delivered,omitempty"`
}

func newResult(plan *Plan, slots []*slot, elapsed time.Duration) *Result {
	result := &Result{
		Seconds:   elapsed.Seconds(),
		Statuses:  map[string]int{},
		Errors:    map[string]int{},
		PerSecond: make([]int, int(elapsed.Seconds())+1),
	}
	var latencies []time.Duration
	for _, s := range slots {
		result.Operations += len(s.seen)
		result.Messages += s.messages
		result.Sent += s.client.sent
		result.Received += s.client.received
		for text, count := range s.errors {
			result.Errors[text] += count
		}
		for _, o := range s.seen {
			if o.status != 0 {
				result.Statuses[strconv.Itoa(o.status)]++
			}
			if o.status >= 200 && o.status < 300 {
				latencies = append(latencies, o.latency)
				result.PerSecond[min(int(o.ended.Seconds()), len(result.PerSecond)-1)]++
			}
		}
	}
	result.Succeeded = len(latencies)
	result.Rate = float64(len(latencies)) / elapsed.Seconds()
	result.Latency = percentiles(latencies)
	if plan.Capture {
		result.Captured = make([]string, plan.Count) // empty where nothing was answered
		for _, s := range slots {
			for i, body := range s.captured {
				result.Captured[i] = body
			}
		}
	}
	return result
}

func percentiles(latencies []time.Duration) map[string]float64 {
	if len(latencies) == 0 {
		return map[string]float64{}
	}
	slices.Sort(latencies)
	at := func(share float64) float64 {
		rank := int(math.Ceil(share*float64(len(latencies)))) - 1
		return float64(latencies[max(rank, 0)]) / float64(time.Millisecond)
	}
	return map[string]float64{"p50": at(0.50), "p95": at(0.95), "p99": at(0.99), "max": at(1)}
}

func ownCPU() float64 {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
}
