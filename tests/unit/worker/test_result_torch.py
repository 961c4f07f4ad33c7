"""Tensors in the result of rank 0 are memory-mapped, not pickled."""

from pathlib import Path

import pytest
import torch
from result_transfer import handed_over, is_mapped
from torch import nn

pytestmark = pytest.mark.torch

MANY = 1 << 19


def form(tensor):
    return type(tensor), tensor.dtype, tensor.shape, tensor.stride(), tensor.requires_grad


@pytest.mark.parametrize(
    "sent",
    [
        torch.arange(MANY),
        torch.arange(MANY).to(torch.bfloat16),
        torch.arange(MANY).reshape(4, -1).T,
        torch.arange(2 * MANY)[MANY:],
        torch.zeros(1).expand(1000, 1000),
        torch.randn(MANY, requires_grad=True),
        nn.Parameter(torch.randn(MANY)),
        torch.empty(0, 3),
        torch.tensor([1, 2]),
    ],
    ids=["int", "bfloat16", "transposed", "offset", "expanded", "requires grad", "parameter",
         "empty", "small"],
)  # fmt: skip
def test_tensor_of_any_form_is_returned(tmp_path: Path, sent: torch.Tensor) -> None:
    arrived = handed_over(sent, tmp_path)
    assert form(arrived) == form(sent)
    assert torch.equal(arrived, sent)


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize("count", [10, MANY])
@pytest.mark.parametrize("name", ["uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2", "complex32"])
def test_tensor_of_a_newer_dtype_is_returned(tmp_path: Path, name: str, count: int) -> None:
    content = torch.arange(2 * count * getattr(torch, name).itemsize).to(torch.uint8)
    whole = content.view(getattr(torch, name))
    views = handed_over([whole, whole[count:], nn.Parameter(whole, requires_grad=False)], tmp_path)
    forms = [form(whole), form(whole[count:]), (nn.Parameter, *form(whole)[1:])]
    assert [form(each) for each in views] == forms
    views[0].view(torch.uint8)[-1] = 7
    content[-1] = 7
    assert [torch.equal(each.view(torch.uint8), content[-each.nbytes :]) for each in views] == [True] * 3


def test_views_of_one_memory_stay_views_of_one_memory(tmp_path):
    whole = torch.zeros(MANY)
    arrived = handed_over({"whole": whole, "row": whole.view(4, -1)[1], "again": whole}, tmp_path)
    arrived["row"].fill_(3)
    assert arrived["again"] is arrived["whole"]
    assert arrived["row"].untyped_storage() is arrived["whole"].untyped_storage()
    assert arrived["whole"].sum() == 3 * MANY // 4
    assert whole.sum() == 0


def test_returned_module_is_mapped_and_can_be_trained(tmp_path):
    torch.manual_seed(0)
    sent = nn.Linear(1000, 1000)
    arrived = handed_over(sent, tmp_path)
    assert is_mapped(arrived.weight.data_ptr())
    arrived(torch.ones(1, 1000)).sum().backward()
    with torch.no_grad():
        for parameter in arrived.parameters():
            parameter.sub_(0.1 * parameter.grad)
    before, after = sent.state_dict(), arrived.state_dict()
    torch.testing.assert_close(after, {name: value - 0.1 for name, value in before.items()})


def test_tensors_and_arrays_may_be_mixed_without_new_sharing(tmp_path):
    first, second = torch.ones(MANY), torch.ones(MANY)
    arrived = handed_over([first, (second, {"array": second.numpy(), "small": torch.ones(2)})], tmp_path)
    arrived[0].fill_(7)
    tensor, others = arrived[1]
    assert [each.sum() for each in (tensor, others["array"], others["small"])] == [MANY, MANY, 2]


class MadeWhenPickled:
    """An object with a tensor that exists only while it is pickled."""

    def __init__(self, value):
        self.value = value

    def __getstate__(self):
        return {"value": self.value, "tensor": torch.full((MANY,), self.value)}


def test_memory_created_during_pickling_is_kept_separate(tmp_path):
    arrived = handed_over([MadeWhenPickled(float(number)) for number in range(20)], tmp_path)
    assert [each.__dict__["tensor"].unique().tolist() for each in arrived] == [[float(n)] for n in range(20)]
