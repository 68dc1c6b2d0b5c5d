func.func private @project(%x: tensor<512x512xf32>, %w: tensor<512x512xf32>) -> tensor<512x512xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<512x512xf32>
  %start = linalg.fill ins(%zero : f32) outs(%empty : tensor<512x512xf32>) -> tensor<512x512xf32>
  %y = linalg.matmul ins(%x, %w : tensor<512x512xf32>, tensor<512x512xf32>)
    outs(%start : tensor<512x512xf32>) -> tensor<512x512xf32>
  return %y : tensor<512x512xf32>
}

func.func private @normalize(%x: tensor<512x512xf32>) -> tensor<512x512xf32> {
  %empty = tensor.empty() : tensor<512x512xf32>
  %y = linalg.softmax dimension(1) ins(%x : tensor<512x512xf32>)
    outs(%empty : tensor<512x512xf32>) -> tensor<512x512xf32>
  return %y : tensor<512x512xf32>
}

func.func @main(%x: tensor<512x512xf32>, %w: tensor<512x512xf32>) -> tensor<512x512xf32> {
  %0 = call @project(%x, %w) : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
  %1 = call @normalize(%0) : (tensor<512x512xf32>) -> tensor<512x512xf32>
  %2 = call @project(%1, %w) : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
  return %2 : tensor<512x512xf32>
}
