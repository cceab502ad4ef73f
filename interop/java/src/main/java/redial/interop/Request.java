package redial.interop;

import java.io.ByteArrayOutputStream;
import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;

/** The messages of echo.proto, field by field. */
record Request(
    byte[] payload, int failures, int code, Integer pushbackMs, int failing, long delayMs, int responses) {
  static final int FAILING_FIRST_ITEM = 1;
  static final int FAILING_AT_END = 2;

  private static final int VARINT = 0;
  private static final int FIXED64 = 1;
  private static final int LENGTH_DELIMITED = 2;
  private static final int FIXED32 = 5;
  private static final int FIELDS = 8;

  static Request parse(byte[] message) {
    ByteBuffer in = ByteBuffer.wrap(message);
    byte[] payload = new byte[0];
    Long[] values = new Long[FIELDS];
    try {
      while (in.hasRemaining()) {
        long tag = varint(in);
        int field = (int) (tag >>> 3);
        switch ((int) (tag & 7)) {
          case VARINT -> {
            long value = varint(in);
            if (field > 0 && field < FIELDS) {
              values[field] = value;
            }
          }
          case LENGTH_DELIMITED -> {
            byte[] bytes = bytes(in, varint(in));
            payload = field == 1 ? bytes : payload;
          }
          case FIXED64 -> bytes(in, Long.BYTES);
          case FIXED32 -> bytes(in, Integer.BYTES);
          default -> throw malformed();
        }
      }
    } catch (BufferUnderflowException tooShort) {
      throw malformed();
    }
    Integer pushback = values[4] == null ? null : zigZag(values[4]);
    return new Request(
        payload,
        orZero(values[2]),
        orZero(values[3]),
        pushback,
        orZero(values[5]),
        Integer.toUnsignedLong(orZero(values[6])),
        values[7] == null ? 1 : values[7].intValue());
  }

  static byte[] response(byte[] payload, int previousAttempts, int received) {
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    write(out, 1 << 3 | LENGTH_DELIMITED);
    write(out, payload.length);
    out.writeBytes(payload);
    write(out, 2 << 3 | VARINT);
    write(out, Integer.toUnsignedLong(previousAttempts));
    write(out, 3 << 3 | VARINT);
    write(out, Integer.toUnsignedLong(received));
    return out.toByteArray();
  }

  private static int orZero(Long value) {
    return value == null ? 0 : value.intValue();
  }

  private static int zigZag(long value) {
    int bits = (int) value;
    return bits >>> 1 ^ -(bits & 1);
  }

  private static long varint(ByteBuffer in) {
    long value = 0;
    for (int shift = 0; shift < Long.SIZE; shift += 7) {
      byte next = in.get();
      value |= (next & 0x7fL) << shift;
      if (next >= 0) {
        return value;
      }
    }
    throw malformed();
  }

  private static byte[] bytes(ByteBuffer in, long length) {
    if (length < 0 || length > in.remaining()) {
      throw malformed();
    }
    byte[] bytes = new byte[(int) length];
    in.get(bytes);
    return bytes;
  }

  private static void write(ByteArrayOutputStream out, long varint) {
    for (; (varint & ~0x7fL) != 0; varint >>>= 7) {
      out.write((int) (varint & 0x7f | 0x80));
    }
    out.write((int) varint);
  }

  private static RuntimeException malformed() {
    return new IllegalArgumentException("malformed request");
  }
}
