package main

// The messages of echo.proto, field by field.

import (
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

const (
	failingFirstItem = 1
	failingAtEnd     = 2
)

type request struct {
	payload   []byte
	failures  uint64
	code      uint64
	pushback  *int64
	failing   uint64
	delay     time.Duration
	responses uint64
}

func parse(message []byte) (*request, error) {
	request := request{responses: 1}
	for len(message) > 0 {
		number, kind, length := protowire.ConsumeTag(message)
		if length < 0 {
			return nil, malformed(length)
		}
		message = message[length:]
		var value uint64
		switch {
		case number == 1 && kind == protowire.BytesType:
			request.payload, length = protowire.ConsumeBytes(message)
		case number >= 2 && number <= 7 && kind == protowire.VarintType:
			value, length = protowire.ConsumeVarint(message)
		default:
			length = protowire.ConsumeFieldValue(number, kind, message)
		}
		if length < 0 {
			return nil, malformed(length)
		}
		message = message[length:]
		switch number {
		case 2:
			request.failures = value
		case 3:
			request.code = value
		case 4:
			pushback := protowire.DecodeZigZag(value)
			request.pushback = &pushback
		case 5:
			request.failing = value
		case 6:
			request.delay = time.Duration(uint32(value)) * time.Millisecond
		case 7:
			request.responses = value
		}
	}
	return &request, nil
}

func malformed(length int) error {
	return status.Error(codes.Internal, "malformed request: "+protowire.ParseError(length).Error())
}

func response(payload []byte, previous, received uint64) []byte {
	var message []byte
	message = protowire.AppendTag(message, 1, protowire.BytesType)
	message = protowire.AppendBytes(message, payload)
	message = protowire.AppendTag(message, 2, protowire.VarintType)
	message = protowire.AppendVarint(message, previous)
	message = protowire.AppendTag(message, 3, protowire.VarintType)
	return protowire.AppendVarint(message, received)
}
