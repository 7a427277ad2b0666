"""The official clients and litellm with API keys, over TLS, against a cluster with the real model.

Usage: keyed_clients.py https://HOST:PORT CA_FILE KEYS_FILE

KEYS_FILE has the hashes of key-alice, of key-late, which has expired, of key-gone, which is
revoked, of key-rare, which allows one request in a long time, and of key-carol, which this script
removes from the file."""
import asyncio
import json
import os
import ssl
import sys
import time

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # nothing is fetched from elsewhere

import anthropic
import certifi
import httpx2
import litellm
import openai
from langchain_openai import ChatOpenAI

from checks import equal, run

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
REFUSED = {
    "wrong": "the API key is not valid here",
    "key-late": 'the API key "of-late/late" expired at 2020-',
    "key-gone": 'the API key "of-gone/gone" was revoked',
}


def context_of(ca_file):
    return ssl.create_default_context(cafile=ca_file)


def openai_of(url, ca_file, key="key-alice", **options):
    return openai.OpenAI(base_url=url + "/v1", api_key=key,
                         http_client=httpx2.Client(verify=context_of(ca_file)), **options)


def anthropic_of(url, ca_file, key="key-alice", **options):
    return anthropic.Anthropic(base_url=url, api_key=key,
                               http_client=httpx2.Client(verify=context_of(ca_file)), **options)


def ask_litellm(url, ca_file, key="key-alice", **options):
    os.environ["SSL_CERT_FILE"] = ca_file
    return litellm.completion(model="openai/" + model_of(url, ca_file), messages=QUESTION, api_key=key,
                              api_base=url + "/v1", temperature=0, max_tokens=24, max_retries=0, **options)


def model_of(url, ca_file):
    return openai_of(url, ca_file).models.list().data[0].id


def raised(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised")


def check_openai(url, ca_file, _):
    client = openai_of(url, ca_file)
    model = model_of(url, ca_file)
    answer = client.chat.completions.create(model=model, messages=QUESTION, temperature=0, max_tokens=24)
    text = answer.choices[0].message.content
    assert "Paris" in text, text
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in client.chat.completions.create(
        model=model, messages=QUESTION, temperature=0, max_tokens=24, stream=True))
    equal(streamed, text)
    response = client.responses.create(model=model, input=QUESTION, temperature=0, max_output_tokens=24)
    equal(response.output_text, text)


async def check_openai_async(url, ca_file, _):
    async with httpx2.AsyncClient(verify=context_of(ca_file), http2=True) as http:
        client = openai.AsyncOpenAI(base_url=url + "/v1", api_key="key-alice", http_client=http)
        model = (await client.models.list()).data[0].id
        asks = [client.chat.completions.create(model=model, messages=QUESTION, temperature=0, max_tokens=24)
                for _ in range(4)]
        for answer in await asyncio.gather(*asks):
            assert "Paris" in answer.choices[0].message.content, answer


def check_anthropic(url, ca_file, _):
    claude = anthropic_of(url, ca_file)
    model = model_of(url, ca_file)
    with claude.messages.stream(model=model, max_tokens=24, messages=QUESTION,
                                extra_body={"temperature": 0}) as stream:
        assert "Paris" in "".join(stream.text_stream)
    assert claude.messages.count_tokens(model=model, messages=QUESTION).input_tokens > 0


def check_litellm_knows_prompts_that_are_too_long(url, ca_file, _):
    os.environ["SSL_CERT_FILE"] = ca_file
    for provider, base in (("openai", "/v1"), ("hosted_vllm", "/v1"), ("anthropic", "")):
        raised(litellm.ContextWindowExceededError, lambda provider=provider, base=base: litellm.completion(
            model=f"{provider}/{model_of(url, ca_file)}", api_key="key-alice", api_base=url + base,
            messages=[{"role": "user", "content": "word " * 9000}], max_tokens=8, max_retries=0))


def check_litellm(url, ca_file, _):
    text = ask_litellm(url, ca_file).choices[0].message.content
    assert "Paris" in text, text
    chunks = list(ask_litellm(url, ca_file, stream=True, stream_options={"include_usage": True}))
    equal("".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices), text)
    assert any(getattr(chunk, "usage", None) for chunk in chunks), chunks
    schema = {"type": "object", "properties": {"capital": {"type": "string", "maxLength": 12}},
              "required": ["capital"]}
    answer = ask_litellm(url, ca_file, response_format={
        "type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}})
    equal(list(json.loads(answer.choices[0].message.content)), ["capital"])


def check_langchain(url, ca_file, _):
    chat = ChatOpenAI(base_url=url + "/v1", api_key="key-alice", model=model_of(url, ca_file), temperature=0,
                      max_tokens=24, http_client=httpx2.Client(verify=context_of(ca_file)))
    assert "Paris" in chat.invoke(QUESTION).content


def check_keys_that_are_refused(url, ca_file, _):
    model = model_of(url, ca_file)
    for key, reason in REFUSED.items():
        error = raised(openai.AuthenticationError, lambda: openai_of(url, ca_file, key).models.list())
        equal(error.status_code, 401)
        assert reason in error.message, error.message
        assert key not in error.message or key == "wrong", error.message
        error = raised(anthropic.AuthenticationError, lambda: anthropic_of(url, ca_file, key).messages.create(
            model=model, max_tokens=24, messages=QUESTION))
        assert reason in error.message, error.message
        equal(error.body["type"], "error")
        error = raised(litellm.AuthenticationError, lambda: ask_litellm(url, ca_file, key))
        assert reason in error.message, error.message


def check_limit(url, ca_file, _):
    model = model_of(url, ca_file)
    ask = dict(model=model, messages=QUESTION, max_tokens=1)
    client = openai_of(url, ca_file, "key-rare", max_retries=0)
    client.chat.completions.create(**ask)
    error = raised(openai.RateLimitError, lambda: client.chat.completions.create(**ask))
    assert "requests_per_second" in error.message, error.message
    wait = int(error.response.headers["retry-after"])
    assert 900 < wait <= 1000, wait  # one request in 1,000 s
    error = raised(anthropic.RateLimitError, lambda: anthropic_of(
        url, ca_file, "key-rare", max_retries=0).messages.create(**ask))
    equal(error.body["error"]["type"], "rate_limit_error")
    raised(litellm.RateLimitError, lambda: ask_litellm(url, ca_file, "key-rare"))


def check_a_key_that_is_removed(url, ca_file, keys_file):
    client = openai_of(url, ca_file, "key-carol")
    client.models.list()
    with open(keys_file, encoding="utf-8") as file:
        keys = json.load(file)
    keys["keys"] = [key for key in keys["keys"] if key["name"] != "carol"]
    with open(keys_file + ".new", "w", encoding="utf-8") as file:
        json.dump(keys, file)
    os.replace(keys_file + ".new", keys_file)
    limit = time.monotonic() + 15
    while time.monotonic() < limit:
        try:
            client.models.list()
        except openai.AuthenticationError as error:
            assert REFUSED["wrong"] in error.message, error.message
            break
        time.sleep(0.1)
    else:
        raise AssertionError("the removed key is still accepted")
    openai_of(url, ca_file).models.list()


def check_the_router_is_verified(url, _, __):
    client = openai.OpenAI(base_url=url + "/v1", api_key="key-alice", max_retries=0,
                           http_client=httpx2.Client(verify=context_of(certifi.where())))
    error = raised(openai.APIConnectionError, client.models.list)
    assert "CERTIFICATE_VERIFY_FAILED" in str(error.__cause__), repr(error.__cause__)


if __name__ == "__main__":
    run(dict(globals()), *sys.argv[1:])
