"""The official clients over HTTP/2: see clients_test.cc. Over http the client knows that the router
speaks HTTP/2; over https the handshake tells (ALPN).

Usage: http2_clients.py URL [CA_FILE]"""
import asyncio
import ssl
import sys

import anthropic
import httpx2
import openai

from checks import equal, run

MODEL = "bytes"
HI = [{"role": "user", "content": "Hi"}]


class Versions:
    """The protocol of each answer, and the client's end of each connection."""

    def __init__(self):
        self.versions = set()
        self.connections = set()

    def note(self, response):
        self.versions.add(response.http_version)
        stream = response.extensions["network_stream"]
        self.connections.add(stream.get_extra_info("client_addr"))

    async def note_async(self, response):
        self.note(response)

    def check(self, connections=1):
        equal(self.versions, {"HTTP/2"})
        equal(len(self.connections), connections)


def options_of(url, ca_file, hook):
    context = ssl.create_default_context(cafile=ca_file) if ca_file else True
    return {"http2": True, "http1": url.startswith("https"), "verify": context,
            "event_hooks": {"response": [hook]}}


def check_chat_and_stream(url, ca_file):
    seen = Versions()
    with httpx2.Client(**options_of(url, ca_file, seen.note)) as http:
        client = openai.OpenAI(base_url=url + "/v1", api_key="none", http_client=http)
        equal(client.models.list().data[0].id, MODEL)
        for _ in range(3):
            answer = client.chat.completions.create(model=MODEL, messages=HI)
            equal(answer.choices[0].message.content, "Hello there.")
        text = ""
        for chunk in client.chat.completions.create(model=MODEL, messages=HI, stream=True):
            text += chunk.choices[0].delta.content or ""
        equal(text, "Hello there.")
        try:
            client.chat.completions.create(model="other", messages=HI)
            raise AssertionError("another model was not refused")
        except openai.NotFoundError as error:
            equal(error.code, "model_not_found")
    seen.check()


def check_messages(url, ca_file):
    seen = Versions()
    with httpx2.Client(**options_of(url, ca_file, seen.note)) as http:
        client = anthropic.Anthropic(base_url=url, api_key="none", http_client=http)
        with client.messages.stream(model=MODEL, max_tokens=500, messages=HI) as stream:
            equal("".join(stream.text_stream), "Hello there.")
    seen.check()


async def check_requests_at_once(url, ca_file):
    seen = Versions()
    async with httpx2.AsyncClient(**options_of(url, ca_file, seen.note_async)) as http:
        # The router has one place for requests (max_requests=1): the others try again.
        client = openai.AsyncOpenAI(
            base_url=url + "/v1", api_key="none", http_client=http, max_retries=20)
        await client.models.list()
        counts = [client.post("/../tokenize", cast_to=object, body={"prompt": "x" * n})
                  for n in range(1, 41)]
        equal([len(answer["tokens"]) for answer in await asyncio.gather(*counts)],
              list(range(1, 41)))
        chats = [client.chat.completions.create(model=MODEL, messages=HI) for _ in range(3)]
        for answer in await asyncio.gather(*chats):
            equal(answer.choices[0].message.content, "Hello there.")
    seen.check()


if __name__ == "__main__":
    run(dict(globals()), sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None)
