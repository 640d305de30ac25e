package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// slot is one operation at a time: its client and what it has seen.
type slot struct {
	number   int
	client   *client
	seen     []observation
	captured map[int]string
	errors   map[string]int
	messages int // that its steps have taken
	receipts []receipt
}

// receipt is a message that was published, and when its publisher sent it and knew.
type receipt struct {
	sequence int64
	sent     time.Time
	answered time.Time
}

type observation struct {
	ended   time.Duration // since the start of the run
	latency time.Duration
	status  int // 0: no answer
}

func execute(plan *Plan) (*Result, error) {
	slots := make([]*slot, plan.InFlight)
	for i := range slots {
		slots[i] = &slot{
			number:   i,
			client:   newClient(time.Duration(plan.Timeout * float64(time.Second))),
			captured: map[int]string{},
			errors:   map[string]int{},
		}
		defer slots[i].client.close()
	}
	if err := connectAll(plan, slots); err != nil {
		return nil, err
	}
	audience, err := gather(plan)
	if err != nil {
		return nil, err
	}
	defer audience.close()
	plan.stopOnInterrupt()
	var next atomic.Int64
	var running sync.WaitGroup
	cpu := ownCPU()
	start := time.Now()
	for _, s := range slots {
		running.Add(1)
		go func() {
			defer running.Done()
			s.work(plan, start, &next)
		}()
	}
	running.Wait()
	elapsed := time.Since(start)
	cpu = ownCPU() - cpu
	result := newResult(plan, slots, elapsed)
	result.CPU = cpu
	if len(plan.Readers) > 0 {
		audience.catchUp(result.Succeeded)
		audience.close()
		result.Delivered, err = newDelivered(audience, slots, start)
	}
	return result, err
}

// stopOnInterrupt lets whoever started this end it: it then says what it has seen so far.
func (p *Plan) stopOnInterrupt() {
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	fmt.Fprintln(os.Stderr, "started")
	go func() {
		<-interrupts
		close(p.stop)
	}()
}

// isStopped waits for so long, or until the plan is to end: then it says so.
func (p *Plan) isStopped(wait time.Duration) bool {
	if wait <= 0 {
		select {
		case <-p.stop:
			return true
		default:
			return false
		}
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-p.stop:
		return true
	case <-timer.C:
		return false
	}
}

// connectAll opens the connections before the clock starts: set-up is not what is compared.
func connectAll(plan *Plan, slots []*slot) error {
	if len(plan.Requests) == 0 {
		return nil // the store's address is known only with the first ticket, that of a step when it is filled in
	}
	for i, s := range slots {
		if plan.Requests[i%len(plan.Requests)].wire.grpc != nil {
			continue // it connects with its first call
		}
		if _, err := s.client.connect(plan.Requests[i%len(plan.Requests)].wire.address); err != nil {
			return fmt.Errorf("connection %d: %w", i+1, err)
		}
	}
	return nil
}

func (s *slot) work(plan *Plan, start time.Time, next *atomic.Int64) {
	limit := time.Duration(plan.Seconds * float64(time.Second))
	for {
		i := int(next.Add(1) - 1)
		if i >= plan.Count || time.Since(start) > limit || plan.isStopped(0) {
			return
		}
		begun := time.Now()
		if plan.Rate > 0 {
			// Latency counts from the schedule, so that a stalled server cannot hide the requests it held up.
			begun = start.Add(time.Duration(float64(i) / plan.Rate * float64(time.Second)))
			if plan.isStopped(time.Until(begun)) {
				return
			}
		}
		status, body, err := s.operate(plan, i)
		ended := time.Now()
		if err != nil {
			status = 0
			s.errors[err.Error()]++
		}
		s.seen = append(s.seen, observation{ended.Sub(start), ended.Sub(begun), status})
		if plan.Capture && err == nil {
			s.captured[i] = string(body)
			if len(plan.Readers) > 0 {
				sequence, _ := strconv.ParseInt(fieldValue(body, "sequence"), 10, 64)
				s.receipts = append(s.receipts, receipt{sequence, begun, ended})
			}
		}
	}
}

func (s *slot) operate(plan *Plan, i int) (int, []byte, error) {
	if plan.Publish != nil {
		return s.publish(plan, i)
	}
	if len(plan.Steps) > 0 {
		return s.steps(plan, i)
	}
	request := plan.Requests[i%len(plan.Requests)].wire
	if request.isFrame {
		return s.client.selectRows(request)
	}
	body := request.body
	if body == nil && request.size > 0 {
		body = plan.body(i, request.size)
	}
	if request.grpc != nil {
		return s.client.call(request, body)
	}
	return s.client.send(request, body, plan.Capture)
}

func (s *slot) publish(plan *Plan, i int) (int, []byte, error) {
	var ticket struct {
		UploadID string            `json:"upload_id"`
		Method   string            `json:"method"`
		URL      string            `json:"url"`
		Headers  map[string]string `json:"headers"`
	}
	p := plan.Publish
	ask := []byte(`{"size":` + strconv.Itoa(p.Size) + `,"content_type":"application/octet-stream"}`)
	status, body, err := s.step("POST", p.TicketURL, p.Headers, ask)
	if err != nil || status != 201 {
		return status, body, err
	}
	if err := json.Unmarshal(body, &ticket); err != nil {
		return 0, nil, fmt.Errorf("ticket: %w", err)
	}
	status, body, err = s.step(ticket.Method, ticket.URL, ticket.Headers, plan.body(i, p.Size))
	if err != nil || status != 200 {
		return status, body, err
	}
	return s.step("GET", p.ReceiptURL+"/"+ticket.UploadID+"?wait=25", p.Headers, nil)
}

func (s *slot) step(method, url string, headers map[string]string, body []byte) (int, []byte, error) {
	request, err := newWireRequest(method, url, headers, len(body))
	if err != nil {
		return 0, nil, err
	}
	return s.client.send(request, body, true)
}
