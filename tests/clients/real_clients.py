"""The official clients against a cluster with the real model.

Usage: real_clients.py http://HOST:PORT"""
import sys

import anthropic
import openai

from checks import equal, run

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


def client_of(address):
    return openai.OpenAI(base_url=address + "/v1", api_key="none")


def model_of(address):
    return client_of(address).models.list().data[0].id


def check_chat(address):
    client = client_of(address)
    model = model_of(address)
    answer = client.chat.completions.create(
        model=model, messages=QUESTION, temperature=0, max_tokens=24, logprobs=True, top_logprobs=2)
    text = answer.choices[0].message.content
    assert "Paris" in text, text
    equal(len(answer.choices[0].logprobs.content), answer.usage.completion_tokens)
    assert answer.system_fingerprint.startswith("fp_"), answer.system_fingerprint
    streamed = ""
    usage = None
    for chunk in client.chat.completions.create(
            model=model, messages=QUESTION, temperature=0, max_tokens=24, stream=True,
            stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        if chunk.choices:
            streamed += chunk.choices[0].delta.content or ""
    equal(streamed, text)
    equal(usage.completion_tokens, answer.usage.completion_tokens)
    again = client.chat.completions.create(
        model=model, messages=QUESTION, temperature=0, max_tokens=24)
    assert again.usage.prompt_tokens_details.cached_tokens > 0, again.usage


def check_responses_and_messages(address):
    model = model_of(address)
    chat = client_of(address).chat.completions.create(
        model=model, messages=QUESTION, temperature=0, max_tokens=24)
    text = chat.choices[0].message.content
    response = client_of(address).responses.create(
        model=model, input=QUESTION, temperature=0, max_output_tokens=24)
    equal(response.output_text, text)
    equal(response.usage.input_tokens, chat.usage.prompt_tokens)
    claude = anthropic.Anthropic(base_url=address, api_key="none")
    message = claude.messages.create(
        model=model, max_tokens=24, messages=QUESTION, extra_body={"temperature": 0})
    equal(message.content[0].text, text)
    with claude.messages.stream(
            model=model, max_tokens=24, messages=QUESTION, extra_body={"temperature": 0}) as stream:
        equal("".join(stream.text_stream), text)
    count = claude.messages.count_tokens(model=model, messages=QUESTION)
    equal(count.input_tokens, chat.usage.prompt_tokens)


def check_completions(address):
    client = client_of(address)
    model = model_of(address)
    tokens = client.post("/../tokenize", cast_to=object, body={"prompt": "The capital of France is"})
    answer = client.completions.create(
        model=model, prompt=["The capital of France is", "Two plus two is"], temperature=0,
        max_tokens=4, logprobs=1, n=1)
    equal(len(answer.choices), 2)
    equal(answer.choices[0].logprobs.text_offset[0], 0)
    by_tokens = client.completions.create(
        model=model, prompt=tokens["tokens"], temperature=0, max_tokens=4, echo=True)
    equal(by_tokens.choices[0].text, "The capital of France is" + answer.choices[0].text)


def check_prompt_logprobs(address):
    """Evaluation harnesses rate a text by the logprobs of its tokens: those of a prompt must be the ones that the
    same tokens have as output."""
    client = client_of(address)
    model = model_of(address)
    text = "The capital of France is Paris, and the one of Italy is Rome. " * 6
    prompt = client.post("/../tokenize", cast_to=object, body={"prompt": text})["tokens"]
    rated = dict(model=model, prompt=text, temperature=0, max_tokens=1, echo=True, logprobs=2, n=2)
    answer = client.completions.create(**rated)
    for choice in answer.choices:
        given = choice.logprobs
        assert choice.text.startswith(text), choice.text
        equal(len(given.tokens), len(prompt) + 1)
        equal((given.token_logprobs[0], given.top_logprobs[0]), (None, None))
        equal("".join(given.tokens), choice.text)
        equal([choice.text[at:at + len(token)] for at, token in zip(given.text_offset, given.tokens)], given.tokens)
        for at in (1, 7, 63, 64, 65, len(prompt) - 1):
            # A bias makes the model write the token; logprobs are those before the bias.
            spoken = client.completions.create(
                model=model, prompt=prompt[:at], temperature=0, max_tokens=1, logprobs=2,
                logit_bias={prompt[at]: 100}).choices[0].logprobs
            equal(spoken.tokens, [given.tokens[at]])
            equal(spoken.token_logprobs, [given.token_logprobs[at]])
            equal(spoken.top_logprobs, [given.top_logprobs[at]])
    alone = client.completions.create(**{**rated, "max_tokens": 0})
    equal(alone.usage.completion_tokens, 0)
    for choice, rated_choice in zip(alone.choices, answer.choices, strict=True):
        equal((choice.text, choice.finish_reason), (text, "length"))
        equal(choice.logprobs.token_logprobs, rated_choice.logprobs.token_logprobs[:-1])
    streamed = [[], []]
    for part in client.completions.create(stream=True, **rated):
        for choice in part.choices:
            streamed[choice.index] += choice.logprobs.token_logprobs if choice.logprobs else []
    equal(streamed, [choice.logprobs.token_logprobs for choice in answer.choices])
    named = client.chat.completions.create(
        model=model, messages=QUESTION, max_tokens=1, extra_body={"prompt_logprobs": 1})
    equal(len(named.prompt_logprobs), named.usage.prompt_tokens)
    equal(named.prompt_logprobs[0], None)
    assert all(entry["logprob"] <= 0 for token in named.prompt_logprobs[1:] for entry in token.values())


async def check_async(address):
    async with openai.AsyncOpenAI(base_url=address + "/v1", api_key="none") as client:
        model = (await client.models.list()).data[0].id
        text = ""
        async for event in await client.responses.create(
                model=model, input=QUESTION, temperature=0, max_output_tokens=24, stream=True):
            if event.type == "response.output_text.delta":
                text += event.delta
        assert "Paris" in text, text


def check_tools_are_refused(address):
    try:
        client_of(address).chat.completions.create(
            model=model_of(address), messages=QUESTION,
            tools=[{"type": "function", "function": {"name": "f"}}])
        raise AssertionError("the model's template has no tools, but they were accepted")
    except openai.BadRequestError as error:
        equal(error.param, "tools")


if __name__ == "__main__":
    run(dict(globals()), sys.argv[1])
