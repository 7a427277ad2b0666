"""litellm, by its providers for servers with these APIs."""
import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # nothing is fetched from elsewhere

import litellm

from flows import ASK_ANIMAL, TOM, Animal, call, equal, flow, main, not_offered, say
from openai_flows import chat_flows, chat_parameters, completions_flows, response_parameters, responses_flows

# What litellm calls the tool by which a provider without a response format answers.
ASK_JSON_TOOL = "Describe a cat. " + say(call("json_tool_call", TOM.model_dump()))


def options_of(provider, endpoint):
    return {"model": f"{provider}/{endpoint.model}", "api_key": "none", "max_retries": 0,
            "api_base": endpoint.url if provider == "anthropic" else endpoint.v1}


class Chat:
    def __init__(self, provider):
        self.provider = provider

    def create(self, endpoint, **parameters):
        return litellm.completion(**options_of(self.provider, endpoint), **parameters)

    def stream(self, endpoint, **parameters):
        chunks = list(self.create(endpoint, stream=True, **parameters))
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        return text, litellm.stream_chunk_builder(chunks)


class Responses:
    def create(self, endpoint, **parameters):
        return litellm.responses(**options_of("openai", endpoint), **parameters)

    def stream(self, endpoint, **parameters):
        events = list(self.create(endpoint, stream=True, **parameters))
        text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
        return text, events[-1].response


class Completions:
    def create(self, endpoint, **parameters):
        return litellm.text_completion(**options_of("text-completion-openai", endpoint), **parameters)

    def stream(self, endpoint, **parameters):
        chunks = self.create(endpoint, stream=True, **parameters)
        return "".join(chunk.choices[0].text or "" for chunk in chunks)


def declare_chat(provider):
    chat = Chat(provider)
    chat_flows(provider, chat, logprobs=provider != "anthropic")

    @flow(provider, "structured")
    def structured(servers):
        parameters = chat_parameters(ASK_JSON_TOOL if provider == "anthropic" else ASK_ANIMAL)
        answer = chat.create(servers.scripted, response_format=Animal, **parameters)
        equal(Animal.model_validate_json(answer.choices[0].message.content), TOM)


@flow("responses", "structured")
def responses_structured(servers):
    answer = Responses().create(servers.scripted, text_format=Animal, **response_parameters(ASK_ANIMAL))
    equal(Animal.model_validate_json(answer.output_text), TOM)


for one_provider in ("openai", "hosted_vllm", "anthropic"):
    declare_chat(one_provider)
responses_flows("responses", Responses())
completions_flows("completions", Completions())
not_offered("anthropic", "Anthropic's API has no logprobs", "logprobs")

if __name__ == "__main__":
    main()
