package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// wireRequest is a request head, ready to be written.
type wireRequest struct {
	method  string
	address string
	head    []byte
	size    int
	body    []byte // nil: `size` bytes of the plan's payload
	isFrame bool   // the body is all there is: a packet for Tarantool
	grpc    *Grpc  // it is a call: url and header instead of head
	url     string
	header  http.Header
}

func newWireRequest(method, rawURL string, headers map[string]string, size int) (*wireRequest, error) {
	parsed, err := url.Parse(rawURL)
	if err != nil {
		return nil, err
	}
	address, err := local(parsed)
	if err != nil {
		return nil, err
	}
	var head strings.Builder
	fmt.Fprintf(&head, "%s %s HTTP/1.1\r\nHost: %s\r\n", method, parsed.RequestURI(), parsed.Host)
	for name, value := range headers {
		if strings.ContainsAny(name+value, "\r\n") {
			return nil, fmt.Errorf("header %q breaks the line", name)
		}
		fmt.Fprintf(&head, "%s: %s\r\n", name, value)
	}
	if size > 0 || method == http.MethodPut || method == http.MethodPost {
		head.WriteString("Content-Length: " + strconv.Itoa(size) + "\r\n")
	}
	head.WriteString("\r\n")
	return &wireRequest{method: method, address: address, head: []byte(head.String()), size: size}, nil
}

// client is the connections of one operation slot, one an address, kept alive.
type client struct {
	timeout  time.Duration
	conns    map[string]*connection
	sent     int64
	received int64
	grpc     *http.Client
}

type connection struct {
	net.Conn
	reader  *bufio.Reader
	greeted bool // by Tarantool
}

func newClient(timeout time.Duration) *client {
	return &client{timeout: timeout, conns: map[string]*connection{}}
}

func (c *client) connect(address string) (*connection, error) {
	if conn := c.conns[address]; conn != nil {
		return conn, nil
	}
	raw, err := net.DialTimeout("tcp", address, c.timeout)
	if err != nil {
		return nil, err
	}
	conn := &connection{Conn: raw, reader: bufio.NewReaderSize(raw, 16*1024)}
	c.conns[address] = conn
	return conn, nil
}

// send writes the request and reads the whole answer. The body comes back when keep is set.
func (c *client) send(request *wireRequest, body []byte, keep bool) (int, []byte, error) {
	conn, err := c.connect(request.address)
	if err != nil {
		return 0, nil, err
	}
	status, answer, reusable, err := c.exchange(conn, request, body, keep)
	if err != nil || !reusable {
		conn.Close()
		delete(c.conns, request.address)
	}
	return status, answer, err
}

func (c *client) exchange(
	conn *connection, request *wireRequest, body []byte, keep bool,
) (status int, answer []byte, reusable bool, err error) {
	if err = conn.SetDeadline(time.Now().Add(c.timeout)); err != nil {
		return 0, nil, false, err
	}
	buffers := net.Buffers{request.head}
	if len(body) > 0 {
		buffers = append(buffers, body)
	}
	written, writeErr := buffers.WriteTo(conn)
	c.sent += written
	// A server may refuse before it has read the body: its answer says more than our broken write.
	response, err := http.ReadResponse(conn.reader, &http.Request{Method: request.method})
	if err != nil {
		if writeErr != nil {
			err = writeErr
		}
		return 0, nil, false, err
	}
	defer response.Body.Close()
	var length int64
	if keep {
		answer, err = io.ReadAll(response.Body)
		length = int64(len(answer))
	} else {
		length, err = io.Copy(io.Discard, response.Body)
	}
	c.received += length
	return response.StatusCode, answer, !response.Close && writeErr == nil, err
}

func (c *client) close() {
	if c.grpc != nil {
		c.grpc.CloseIdleConnections()
	}
	for _, conn := range c.conns {
		conn.Close()
	}
}
