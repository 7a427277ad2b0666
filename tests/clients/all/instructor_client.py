"""Instructor, in its modes for three APIs. The default mode of each API calls a tool by name."""
from collections.abc import Iterable

import anthropic
import instructor
import openai

from flows import (ASK_ANIMAL, QUESTION, TOM, Animal, call, equal, flow, main, not_offered, say)

WANTED = TOM.model_dump()  # Instructor answers with objects of classes of its own
ASK_TOOL_ANIMAL = "Describe a cat. " + say(call("Animal", WANTED))
ASK_PARTIAL = "Describe a cat. " + say(call("PartialAnimal", WANTED))


def openai_of(endpoint, mode=instructor.Mode.TOOLS):
    return instructor.from_openai(openai.OpenAI(base_url=endpoint.v1, api_key="none"), mode=mode, model=endpoint.model)


def anthropic_of(endpoint):
    return instructor.from_anthropic(anthropic.Anthropic(base_url=endpoint.url, api_key="none"), model=endpoint.model)


def user(text):
    return [{"role": "user", "content": text}]


@flow("chat", "plain")
def chat_plain(servers):
    answer = openai_of(servers.real).create(response_model=None, messages=user(QUESTION), max_tokens=24)
    assert answer.choices[0].message.content, answer


@flow("chat", "stream")
def chat_stream(servers):
    parts = list(openai_of(servers.scripted).create_partial(response_model=Animal, messages=user(ASK_PARTIAL)))
    assert len(parts) > 1, parts
    equal(parts[-1].model_dump(), WANTED)


@flow("chat", "auto")
def chat_auto(servers):
    calls = "\n".join([call("Animal", WANTED)] * 2)
    animals = openai_of(servers.scripted, instructor.Mode.PARALLEL_TOOLS).create(
        response_model=Iterable[Animal], messages=user("Describe two cats. " + say(calls)))
    equal([one.model_dump() for one in animals], [WANTED, WANTED])


@flow("chat", "named")
@flow("chat", "structured")
def chat_structured(servers):
    answer = openai_of(servers.scripted).create(response_model=Animal, messages=user(ASK_TOOL_ANIMAL))
    equal(answer.model_dump(), WANTED)


def declare_json(api, mode):
    @flow(api, "stream")
    def stream(servers):
        parts = list(openai_of(servers.scripted, mode).create_partial(response_model=Animal, messages=user(ASK_ANIMAL)))
        equal(parts[-1].model_dump(), WANTED)

    @flow(api, "structured")
    def structured(servers):
        answer = openai_of(servers.scripted, mode).create(response_model=Animal, messages=user(ASK_ANIMAL))
        equal(answer.model_dump(), WANTED)

    not_offered(api, "the mode is only a form of structured output", "plain", "auto", "required", "named", "logprobs")


@flow("responses", "named")
@flow("responses", "structured")
def responses_structured(servers):
    client = openai_of(servers.scripted, instructor.Mode.RESPONSES_TOOLS)
    equal(client.create(response_model=Animal, messages=user(ASK_TOOL_ANIMAL)).model_dump(), WANTED)


@flow("responses", "stream")
def responses_stream(servers):
    client = openai_of(servers.scripted, instructor.Mode.RESPONSES_TOOLS)
    parts = list(client.create_partial(response_model=Animal, messages=user(ASK_PARTIAL)))
    equal(parts[-1].model_dump(), WANTED)


@flow("messages", "plain")
def messages_plain(servers):
    answer = anthropic_of(servers.real).create(response_model=None, messages=user(QUESTION), max_tokens=24)
    assert answer.content[0].text, answer


@flow("messages", "stream")
def messages_stream(servers):
    parts = list(anthropic_of(servers.scripted).create_partial(
        response_model=Animal, messages=user(ASK_PARTIAL), max_tokens=200))
    equal(parts[-1].model_dump(), WANTED)


@flow("messages", "named")
@flow("messages", "structured")
def messages_structured(servers):
    answer = anthropic_of(servers.scripted).create(
        response_model=Animal, messages=user(ASK_TOOL_ANIMAL), max_tokens=200)
    equal(answer.model_dump(), WANTED)


NO_LOOP = "Instructor calls no tools, it only reads their arguments as an answer"
declare_json("chat, JSON schema", instructor.Mode.JSON_SCHEMA)
declare_json("chat, JSON mode", instructor.Mode.JSON)
not_offered("chat", NO_LOOP, "required", "logprobs")
not_offered("responses", NO_LOOP, "plain", "auto", "required", "logprobs")
not_offered("messages", NO_LOOP, "auto", "required", "logprobs")

if __name__ == "__main__":
    main()
