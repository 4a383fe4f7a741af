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
        || words.contains("context window is full")
}

/// Returns true if the words of an error without a status ask for money. `words` is in lower case.
pub(crate) fn mentions_payment(words: &str) -> bool {
    ["insufficient balance", "insufficient credit", "insufficient quota", "insufficient funds"]
        .iter()
        .any(|phrase| words.contains(phrase))
}

/// Reads a wait that is requested in words, such as `Please try again in 1m12.5s`.
pub(crate) fn requested_wait(words: &str) -> Option<Duration> {
    let words = words.to_lowercase();
    let leads =
        ["try again in ", "retry in ", "retry after ", "try again after ", "reset after ", "wait for ", "wait "];
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversations_that_are_too_long_are_recognized_by_words() {
        for words in [
            "prompt is too long: 213462 tokens > 200000 maximum",
            "input length and `max_tokens` exceed context limit: 143291 + 64000 > 200000, decrease input length",
            "This model's maximum context length is 8192 tokens.",
            "Your input exceeds the context window of this model.",
            "request (4390 tokens) exceeds the available context size (4096 tokens), try increasing it",
            "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
            "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
            "The prompt (length 40000) is longer than the maximum model length of 32768.",
            "Requested token count exceeds the model's maximum input length of 32768 tokens",
            "Please reduce the length of the messages or completion.",
            "Input length 40000 exceeds the maximum length 32768",
            "Range of input length should be [1, 30720]",
            "Your request exceeded model token limit: 131072",
            "prompt token count of 143456 exceeds the limit of 128000",
            "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens and 100 `max_new_tokens`",
            "tokens to keep from the initial prompt is greater than the context length",
            "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
        ] {
            assert!(mentions_length(&words.to_lowercase()), "{words}");
        }
        for words in ["`max_tokens` must be at most 32768", "messages: roles must alternate", "invalid tool schema"] {
            assert!(!mentions_length(words), "{words}");
        }
    }

    #[test]
    fn only_context_errors_of_a_server_shorten() {
        for words in ["context size has been exceeded.", "prompt too long; exceeded max context length by 4 tokens"] {
            assert!(is_context_overflow(words), "{words}");
        }
        for words in ["it took too long", "cannot load a context window of 32768", "no memory for that context size"] {
            assert!(!is_context_overflow(words), "{words}");
        }
    }

    #[test]
    fn requested_waits_are_read_from_words() {
        let check =
            |words: &str, ms: Option<u64>| assert_eq!(requested_wait(words), ms.map(Duration::from_millis), "{words}");
        check("Rate limit reached. Please try again in 1m12.5s. Visit", Some(72_500));
        check("Please try again in 250ms.", Some(250));
        check("Please retry in 26.5s.", Some(26_500));
        check("Retry after 3 seconds", Some(3_000));
        check("Your quota will reset after 2h7m23s.", Some(7_643_000));
        check("Please try again in a moment", None);
        check("Please try again in 5", None);
        check("Please try again in 99999999999999999999999999h", None);
    }
}
