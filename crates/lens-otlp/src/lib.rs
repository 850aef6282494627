//! OTLP wire format: encoding, reading, JSON form, and the client that ships it.
