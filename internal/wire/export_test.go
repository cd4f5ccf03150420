package wire

// MaxRequestID is the length of a request id that MaxReplyBytes counts with.
const MaxRequestID = maxRequestID
