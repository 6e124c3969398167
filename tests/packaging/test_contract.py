"""The contract names the packages of the code that Go's and Java's compilers make of it."""

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from pequod_proto import etcd_pb2, pequod_pb2


@pytest.mark.parametrize(
    ("module", "go", "java"),
    [
        (pequod_pb2, "pequod/v1;pequodv1", "pequod.v1"),
        (etcd_pb2, "pequod/etcd;pequodetcd", "pequod.etcd"),
    ],
)
def test_a_contract_names_its_packages(module: object, go: str, java: str) -> None:
    contract = FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(contract)  # type: ignore[attr-defined]
    assert (contract.options.go_package, contract.options.java_package) == (go, java)
    assert contract.options.java_multiple_files
