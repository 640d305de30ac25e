package main

import (
	"bytes"
	"strconv"
	"strings"
)

// Step is one call of an operation that takes several. `<name>` in its URL, headers and body stands for what was
// taken from answers before, `<slot>` for the number of the slot.
type Step struct {
	Method  string            `json:"method"`
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
	Size    int               `json:"size"` // with no Body: so many pseudo-random bytes
	Take    map[string]string `json:"take"` // name: a field of the answer, its first value; see taken
}

// steps runs them one after the other, as one operation; the first that is not answered 2xx ends it.
func (s *slot) steps(plan *Plan, i int) (status int, answer []byte, err error) {
	known := []string{"<slot>", strconv.Itoa(s.number)}
	for at := range plan.Steps {
		step := &plan.Steps[at]
		fill := strings.NewReplacer(known...)
		body := []byte(fill.Replace(step.Body))
		if step.Size > 0 {
			body = plan.body(i*len(plan.Steps)+at, step.Size)
		}
		headers := make(map[string]string, len(step.Headers))
		for name, value := range step.Headers {
			headers[name] = fill.Replace(value)
		}
		status, answer, err = s.step(step.Method, fill.Replace(step.URL), headers, body)
		if err != nil || status < 200 || status > 299 {
			return status, answer, err
		}
		for name, field := range step.Take {
			known = append(known, "<"+name+">", s.taken(answer, field))
		}
	}
	return status, answer, err
}

// taken is the first value of a field; `field[-1]`: the last one; `field[]`: all with commas, counted as messages.
func (s *slot) taken(answer []byte, field string) string {
	if single, many := strings.CutSuffix(field, "[]"); many {
		values := fieldValues(answer, single)
		s.messages += len(values)
		return strings.Join(values, ",")
	}
	if single, last := strings.CutSuffix(field, "[-1]"); last {
		if values := fieldValues(answer, single); len(values) > 0 {
			return values[len(values)-1]
		}
		return ""
	}
	return fieldValue(answer, field)
}

// fieldValues finds what stands behind `"field":` in JSON, numbers and plain strings, wherever it stands: a decoder
// would take more of the machine than the servers that are measured. Our own messages hold nothing that looks alike.
func fieldValues(body []byte, field string) []string {
	var found []string
	mark := []byte(`"` + field + `":`)
	for {
		at := bytes.Index(body, mark)
		if at < 0 {
			return found
		}
		body = body[at+len(mark):]
		end := bytes.IndexAny(body, ",}]")
		if end < 0 {
			return found
		}
		found = append(found, strings.Trim(string(body[:end]), `"`))
	}
}

func fieldValue(body []byte, field string) string {
	if values := fieldValues(body, field); len(values) > 0 {
		return values[0]
	}
	return ""
}
