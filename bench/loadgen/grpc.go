package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

const statusWrong = 400

// Grpc makes a request one gRPC call: Message, and behind it field 2 with Size pseudo-random bytes if there is a Size. It
// is answered well when the status is OK and the answer does not have the field StatusField.
type Grpc struct {
	Message     []byte `json:"message"`
	StatusField uint64 `json:"status_field"`
}

// grpcClient is one HTTP/2 connection without TLS, of one operation slot.
func grpcClient(timeout time.Duration) *http.Client {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	dialer := &net.Dialer{Timeout: timeout}
	return &http.Client{Timeout: timeout, Transport: &http.Transport{
		Protocols:          protocols,
		DisableCompression: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, address)
		},
	}}
}

// call sends one unary call. What comes back as a body is the answer's first field, as if it were a receipt.
func (c *client) call(request *wireRequest, data []byte) (int, []byte, error) {
	if c.grpc == nil {
		c.grpc = grpcClient(c.timeout)
	}
	message := request.grpc.Message
	length := len(message)
	if len(data) > 0 {
		length += 1 + len(binary.AppendUvarint(nil, uint64(len(data)))) + len(data)
	}
	frame := make([]byte, 5, 5+length)
	binary.BigEndian.PutUint32(frame[1:], uint32(length))
	frame = append(frame, message...)
	if len(data) > 0 {
		frame = append(frame, 2<<3|2)
		frame = binary.AppendUvarint(frame, uint64(len(data)))
		frame = append(frame, data...)
	}
	asked, err := http.NewRequest(http.MethodPost, request.url, bytes.NewReader(frame))
	if err != nil {
		return 0, nil, err
	}
	asked.Header = request.header.Clone()
	c.sent += int64(len(frame))
	answered, err := c.grpc.Do(asked)
	if err != nil {
		return 0, nil, err
	}
	defer answered.Body.Close()
	body, err := io.ReadAll(answered.Body)
	if err != nil {
		return 0, nil, err
	}
	c.received += int64(len(body))
	status := answered.Trailer.Get("Grpc-Status") + answered.Header.Get("Grpc-Status")
	if status != "0" {
		return statusWrong, []byte(`{"error":"grpc status ` + status + `"}`), nil
	}
	if len(body) < 5 {
		return 0, nil, errors.New("an answer without a message")
	}
	first, wrong, err := fields(body[5:], request.grpc.StatusField)
	if err != nil {
		return 0, nil, err
	}
	if wrong != 0 {
		return statusWrong, fmt.Appendf(nil, `{"error":"status_code %d"}`, wrong), nil
	}
	return 200, fmt.Appendf(nil, `{"state":"committed","sequence":%d}`, first), nil
}

// fields reads numbers of a message: that of its field 1, if it is one, and that of the status field.
func fields(message []byte, statusField uint64) (first, status uint64, err error) {
	for len(message) > 0 {
		tag, size := binary.Uvarint(message)
		if size <= 0 {
			return 0, 0, errors.New("an answer that cannot be read")
		}
		message = message[size:]
		value, size := binary.Uvarint(message)
		if size <= 0 || tag&7 != 0 && tag&7 != 2 {
			return 0, 0, errors.New("an answer that cannot be read")
		}
		message = message[size:]
		if tag&7 == 2 {
			if value > uint64(len(message)) {
				return 0, 0, errors.New("an answer that is cut")
			}
			message = message[value:]
			continue
		}
		switch tag >> 3 {
		case 1:
			first = value
		case statusField:
			status = value
		}
	}
	return first, status, nil
}
