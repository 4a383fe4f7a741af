//! Words of errors: phrases for a conversation that is too long, and requested waits.

use std::time::Duration;

/// Phrases with which providers reject a conversation that is too long, in lower case.
const TOO_LONG: [&str; 35] = [
    // Anthropic, Bedrock, Fireworks, Ollama
    "too long",
    "exceed context limit",
    "request size exceeds",
    "exceeds the maximum size",
    // OpenAI, Azure, Groq, DeepSeek, vLLM, SGLang
    "context length",
    "context_length",
    "context limit",
    "context window",
    "context_window",
    "reduce the length",
    "longer than the maximum",
    "longer than the model",
    "exceeds the model's max",
    "exceed the model's max",
    "maximum model length",
    "maximum input length",
    "too many input tokens",
    "too many tokens",
    // Google
    "input token count",
    "exceeds the maximum number of tokens",
    // xAI
    "maximum prompt length",
    // llama.cpp, LM Studio
    "context size",
    "context_size",
    "greater than the context",
    // Moonshot, Zhipu, MiniMax, Volcengine, DashScope
    "exceeded model token limit",
    "exceeds max length",
    "exceed max length",
    "exceed max message tokens",
    "exceeds the maximum length",
    "range of input length",
    // GitHub Copilot
    "prompt token count",
    // Text Generation Inference
    "`inputs` must have less than",
    "`inputs` tokens + `max_new_tokens`",
    // Mistral
    "too large for model",
    // Cohere
    "number of tokens in the prompt cannot exceed",
];

/// Returns true if a rejected request's error speaks of the conversation's length. `words` is in
/// lower case.
pub(crate) fn mentions_length(words: &str) -> bool {
    TOO_LONG.iter().any(|phrase| words.contains(phrase))
}

/// Recognizes a conversation that is too long in the words of a server error. llama.cpp reports it
/// with status 500, or within the stream.
///
/// Narrower than [`mentions_length`]: other server errors mention tokens and contexts too, and must
/// not shorten the conversation.
pub(crate) fn is_context_overflow(words: &str) -> bool {
    const SIZES: [&str; 7] = [
        "context size",
        "context_size",
        "context length",
        "context_length",
        "context window",
        "maximum model length",
        "maximum input length",
    ];
    let exceeds = ["exceed", "longer than", "greater than"].iter().any(|word| words.contains(word));
    exceeds && SIZES.iter().any(|size| words.contains(size))
        || words.contains("prompt is too long")
        || words.contains("prompt too long")
        || words.contains("maximum context length is")
}

/// Reads a wait that is requested in words, such as `Please try again in 1m12.5s`.
pub(crate) fn requested_wait(words: &str) -> Option<Duration> {
    let words = words.to_lowercase();
    let leads = ["try again in ", "retry in ", "retry after ", "try again after ", "wait for ", "wait "];
    leads.iter().find_map(|lead| duration(words.split_once(lead)?.1))
}

/// Reads a duration at the start of a text: numbers with their units. `None` without a unit.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    let mut total = None;
    let mut rest = text.trim_start();
    loop {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let Ok(number) = rest[..digits].parse::<f64>() else { return total };
        let unit = rest[digits..].trim_start();
        let letters = unit.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(unit.len());
        let seconds = match &unit[..letters] {
            "ms" | "millisecond" | "milliseconds" => 0.001,
            "s" | "sec" | "secs" | "second" | "seconds" => 1.0,
            "m" | "min" | "mins" | "minute" | "minutes" => 60.0,
            "h" | "hour" | "hours" => 3600.0,
            _ => return total,
        };
        let part = Duration::try_from_secs_f64(number * seconds).ok()?;
        total = Some(total.unwrap_or(Duration::ZERO).checked_add(part)?);
        rest = unit[letters..].trim_start();
    }
}
