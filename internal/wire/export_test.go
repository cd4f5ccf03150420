package wire

// MaxRequestID is the length of a request id that MaxReplyBytes assumes.
const MaxRequestID = maxRequestID
