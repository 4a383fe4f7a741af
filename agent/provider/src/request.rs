//! Request writer: a conversation as the body of a request, in each format.
