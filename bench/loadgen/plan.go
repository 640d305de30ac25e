package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"net"
	"net/http"
	"net/url"
	"os"
)

const (
	maxInFlight   = 4096
	maxSeconds    = 900
	maxOperations = 2_000_000
)

// Plan is one load. Operation i sends Requests[i % len(Requests)], or runs Publish, or all Steps. An interrupt ends it
// early.
type Plan struct {
	InFlight int       `json:"in_flight"` // operation slots, each with connections of its own
	Count    int       `json:"count"`     // operations
	Seconds  float64   `json:"seconds"`   // hard limit: no operation starts after it
	Rate     float64   `json:"rate"`      // operations a second on a fixed schedule; 0: as fast as answers come
	Timeout  float64   `json:"timeout"`   // seconds one request may take
	Seed     int64     `json:"seed"`      // of the bytes sent
	Capture  bool      `json:"capture"`   // return every answer's body
	Requests []Request `json:"requests"`
	Publish  *Publish  `json:"publish"`
	Steps    []Step    `json:"steps"`
	Readers  []Readers `json:"readers"`
	Settle   float64   `json:"settle"` // seconds between the last reader's arrival and the first operation
	payload  []byte
	stop     chan struct{} // closed by an interrupt
}

// Request is sent as it stands. Its body is Size pseudo-random bytes, or the content of BodyFile. With Frame, it is a
// packet for Tarantool, and the URL is tarantool://address.
type Request struct {
	Method   string            `json:"method"`
	URL      string            `json:"url"`
	Headers  map[string]string `json:"headers"`
	Size     int               `json:"size"`
	BodyFile string            `json:"body_file"`
	Frame    []byte            `json:"frame"`
	Grpc     *Grpc             `json:"grpc"` // a gRPC call; Headers are its metadata
	wire     *wireRequest
}

// Publish is ticket, PUT and receipt, timed as one operation.
type Publish struct {
	TicketURL  string            `json:"ticket_url"`  // POST {size, content_type} -> ticket
	ReceiptURL string            `json:"receipt_url"` // GET <ReceiptURL>/<upload_id>?wait=25 -> receipt
	Headers    map[string]string `json:"headers"`     // of both calls to the host
	Size       int               `json:"size"`
}

func readPlan(source io.Reader) (*Plan, error) {
	plan := &Plan{InFlight: 1, Seconds: 60, Timeout: 60, Seed: 1, stop: make(chan struct{})}
	decoder := json.NewDecoder(source)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(plan); err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	if plan.InFlight < 1 || plan.InFlight > maxInFlight || plan.Count < 1 || plan.Count > maxOperations ||
		plan.Seconds <= 0 || plan.Seconds > maxSeconds || plan.Timeout <= 0 || plan.Rate < 0 {
		return nil, errors.New("plan: in_flight, count, seconds, timeout or rate out of bounds")
	}
	given := 0
	for _, is := range []bool{len(plan.Requests) > 0, plan.Publish != nil, len(plan.Steps) > 0} {
		if is {
			given++
		}
	}
	if given != 1 {
		return nil, errors.New("plan: give requests, publish or steps")
	}
	waiting := 0
	for _, readers := range plan.Readers {
		waiting += max(readers.Count, 0)
	}
	if waiting > maxInFlight {
		return nil, errors.New("plan: too many readers")
	}
	return plan, plan.prepare()
}

// prepare does before the clock starts what needs no clock: bytes to send, files, parsed addresses.
func (p *Plan) prepare() error {
	largest := 0
	if p.Publish != nil {
		largest = p.Publish.Size
	}
	for _, step := range p.Steps {
		largest = max(largest, step.Size)
	}
	files := map[string][]byte{}
	for i := range p.Requests {
		request := &p.Requests[i]
		largest = max(largest, request.Size)
		if request.BodyFile != "" && files[request.BodyFile] == nil {
			content, err := os.ReadFile(request.BodyFile)
			if err != nil {
				return err
			}
			files[request.BodyFile] = content
		}
	}
	// Longer than one body, so that neighbouring operations send different bytes.
	p.payload = make([]byte, largest+64*1024)
	rand.New(rand.NewSource(p.Seed)).Read(p.payload)
	for i := range p.Requests {
		request := &p.Requests[i]
		size := request.Size
		if request.BodyFile != "" {
			size = len(files[request.BodyFile])
		}
		wire, err := newWireRequest(request.Method, request.URL, request.Headers, size)
		if err != nil {
			return err
		}
		wire.body = files[request.BodyFile]
		if request.Frame != nil {
			wire.body, wire.isFrame = request.Frame, true
		}
		if request.Grpc != nil {
			wire.grpc, wire.url = request.Grpc, request.URL
			wire.header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}}
			for name, value := range request.Headers {
				wire.header.Set(name, value)
			}
		}
		request.wire = wire
	}
	return nil
}

// body gives operation i its bytes.
func (p *Plan) body(i, size int) []byte {
	offset := (i * 4099) % (len(p.payload) - size)
	return p.payload[offset : offset+size]
}

// local refuses every address that is not this machine's: a load generator must not be aimed at others.
func local(address *url.URL) (string, error) {
	ip := net.ParseIP(address.Hostname())
	if address.Scheme != "http" && address.Scheme != "tarantool" || ip == nil || !ip.IsLoopback() || address.Port() == "" {
		return "", fmt.Errorf("%s://%s: only a loopback address with a port", address.Scheme, address.Host)
	}
	return address.Host, nil
}
