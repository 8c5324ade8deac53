"""The editor in front of an engine that drafts by itself: it tells the engine what to copy, and indexes nothing.

Prompts, answers, streaming and counters are the usual editor's; only what a drafter would be told goes to the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from lookahead_edit.config import EditConfig, SamplingConfig, SpeculationConfig
from lookahead_edit.editor import Editor
from lookahead_edit.tasks import EditRequest, GenerateRequest
from lookahead_edit.types import Draft, Drafter, IntArray, InvalidInput, Source, SourceKind, Target, Tokenizer, never
from lookahead_edit.vllm_plugin.wishes import Wishes

DRAFTED_BEHIND = "the engine drafts"


class EngineTarget(Target, Protocol):
    """A target that drafts by itself."""

    def expect(self, key: int, wishes: Wishes) -> None:
        """Hears what the sequence of this key wants, before its first round."""

    def check_health(self) -> None:
        """Raises EngineUnavailable where no request could be answered now."""

    @property
    def ignored_sampling(self) -> tuple[str, ...]:
        """Fields of SamplingConfig that the engine doesn't apply: requests with them are refused."""


class EngineDrafter:
    """Stands where a drafter would: notes what it is told, and never drafts.

    Args:
        speculation: the request's.
    """

    def __init__(self, speculation: SpeculationConfig) -> None:
        self._max_draft_tokens = speculation.max_draft_tokens if speculation.enabled else 0
        if speculation.drafter == "none":
            self._max_draft_tokens = 0
        self.wishes = Wishes(max_draft_tokens=self._max_draft_tokens)

    def start(self, prompt: IntArray, sources: Sequence[Source]) -> None:
        file: tuple[int, int] | None = None
        others: list[Source] = []
        for source in sources:
            if source.kind == SourceKind.FILE and source.prompt_start is not None:
                file = (source.prompt_start, source.prompt_start + len(source.tokens))
            elif source.kind == SourceKind.FILE:
                others.append(Source(SourceKind.PREDICTION, source.tokens))
            elif source.prompt_start is None:
                others.append(source)
        self.wishes = Wishes(self._max_draft_tokens, file, tuple(others))

    def draft(self, max_draft_tokens: int) -> Draft:
        return Draft(reason=DRAFTED_BEHIND)

    def commit(self, tokens: IntArray, draft: Draft, num_accepted_tokens: int) -> None:
        pass

    @property
    def num_index_bytes(self) -> int:
        return 0


class EngineEditor(Editor):
    """An editor on an engine. Sampled text is the engine's: its seeds are not ours, and drafts may change it.

    Args:
        target: the engine.
        tokenizer: the model's.
        model_name: what answers call the model.
        config: as for every editor.

    Errors: as an editor's; also InvalidInput for sampling that the engine would silently leave out.
    """

    target: EngineTarget

    def __init__(
        self, target: EngineTarget, tokenizer: Tokenizer, *, model_name: str, config: EditConfig | None = None
    ) -> None:
        super().__init__(target, tokenizer, model_name=model_name, config=config)

    def check_health(self) -> None:
        self.target.check_health()

    def check(self, request: EditRequest | GenerateRequest, is_cancelled: Callable[[], bool] = never) -> None:
        super().check(request, is_cancelled)
        for name in self.target.ignored_sampling:
            if getattr(request.sampling, name) != getattr(type(request.sampling)(), name):
                raise InvalidInput(
                    f"expected no {name}: vLLM leaves it out where it verifies drafts",
                    param=name,
                    code="unsupported_parameter",
                )
        if request.speculation.drafter not in (SpeculationConfig.drafter, "none"):
            raise InvalidInput(
                f"expected speculation.drafter to be {SpeculationConfig.drafter} or none, as the engine has no other, "
                f"got {request.speculation.drafter!r}",
                param="speculation.drafter",
                code="unsupported_parameter",
            )

    def open(self, request: Any, is_cancelled: Callable[[], bool] = never, **options: Any) -> Any:
        """As an editor's; the engine is told what the request wants, under its sequence's key."""
        live = super().open(request, is_cancelled, **options)
        drafter = live.sequence.drafter
        assert isinstance(drafter, EngineDrafter)
        self.target.expect(live.sequence.key, drafter.wishes)
        return live

    def _make_drafter(self, speculation: SpeculationConfig, sampling: SamplingConfig | None = None) -> Drafter:
        return EngineDrafter(speculation)
