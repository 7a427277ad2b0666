"""The official client of OpenAI."""
import openai

from flows import ASK_ANIMAL, TOM, Animal, equal, flow, main
from openai_flows import chat_flows, chat_parameters, completions_flows, response_parameters, responses_flows


def client_of(endpoint):
    return openai.OpenAI(base_url=endpoint.v1, api_key="none")


class Chat:
    def create(self, endpoint, **parameters):
        return client_of(endpoint).chat.completions.create(model=endpoint.model, **parameters)

    def stream(self, endpoint, **parameters):
        with client_of(endpoint).chat.completions.stream(
                model=endpoint.model, stream_options={"include_usage": True}, **parameters) as events:
            text = "".join(event.delta for event in events if event.type == "content.delta")
            return text, events.get_final_completion()


class Responses:
    def create(self, endpoint, **parameters):
        return client_of(endpoint).responses.create(model=endpoint.model, **parameters)

    def stream(self, endpoint, **parameters):
        with client_of(endpoint).responses.stream(model=endpoint.model, **parameters) as events:
            text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
            return text, events.get_final_response()


class Completions:
    def create(self, endpoint, **parameters):
        return client_of(endpoint).completions.create(model=endpoint.model, **parameters)

    def stream(self, endpoint, **parameters):
        return "".join(chunk.choices[0].text for chunk in self.create(endpoint, stream=True, **parameters))


@flow("chat", "structured")
def chat_structured(servers):
    parameters = chat_parameters(ASK_ANIMAL)
    answer = client_of(servers.scripted).chat.completions.parse(
        model=servers.scripted.model, response_format=Animal, **parameters)
    equal(answer.choices[0].message.parsed, TOM)
    _, streamed = Chat().stream(servers.scripted, response_format=Animal, **parameters)
    equal(streamed.choices[0].message.parsed, TOM)


@flow("responses", "structured")
def responses_structured(servers):
    parameters = response_parameters(ASK_ANIMAL)
    answer = client_of(servers.scripted).responses.parse(
        model=servers.scripted.model, text_format=Animal, **parameters)
    equal(answer.output_parsed, TOM)
    _, streamed = Responses().stream(servers.scripted, text_format=Animal, **parameters)
    equal(streamed.output_parsed, TOM)


chat_flows("chat", Chat())
responses_flows("responses", Responses())
completions_flows("completions", Completions())

if __name__ == "__main__":
    main()
