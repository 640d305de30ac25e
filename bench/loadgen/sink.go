package main

import (
	"io"
	"net/http"
)

// sink answers every request at once: what a webhook costs that does nothing.
func sink(address string) error {
	return http.ListenAndServe(address, http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		_, _ = io.Copy(io.Discard, request.Body)
	}))
}
