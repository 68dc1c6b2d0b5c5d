from autotune.networks.readers.onnx.network import OnnxNetwork as OnnxNetwork
from autotune.networks.readers.onnx.network import read_onnx as read_onnx
