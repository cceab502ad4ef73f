package main

import "fmt"

// raw passes messages through as bytes, so that no generated code is needed.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(message any) ([]byte, error) {
	if message, ok := message.(*[]byte); ok {
		return *message, nil
	}
	return nil, fmt.Errorf("expected bytes, found %T", message)
}

func (raw) Unmarshal(data []byte, message any) error {
	if message, ok := message.(*[]byte); ok {
		*message = append([]byte(nil), data...)
		return nil
	}
	return fmt.Errorf("expected a place for bytes, found %T", message)
}
